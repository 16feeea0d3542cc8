"""The messages of `grouping=single`, as plain objects, and what they hold.

Shard to executing partition: `Locks`, which has `Payload` (from the home shard of the id, when the
transaction is released) and `Granted` (a lock, with what lies under it). Partition to shard:
`ReleasedLocks`, which has `Released` (a lock, with what was written under it) and `MessagePart`
(which transactions it finishes at its shard); `FinishedParts` tells the other shards. Shard to all
shards: `Swept`. How locks are named: `key_processor.locking.messages`.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from streamydb.frames.protocol import Message


class Payload(msgspec.Struct, array_like=True, gc=False):
    """A released record: its place in the order and in the log, and what it says.

    ``kind``, ``code``: as compiled (see `program`). ``duplicate``: NOT_A_DUPLICATE,
    WINDOW_DUPLICATE or one of REFUSALS (see `frames.program`). ``raw``: the record's value; of a
    rejected one the form that `compile` gives it. ``keys``: (key, written, owning shard) in order
    of first touch. ``silent``: only feedback comes of it. ``ranges``: the range locks that it
    needs.
    """

    seq: int
    ts: int
    part: int
    off: int
    kind: int
    code: int
    duplicate: int
    id: bytes
    raw: bytes
    keys: list[tuple[bytes, bool, int]]
    silent: bool = False
    ranges: list[bytes] = []


class Granted(msgspec.Struct, array_like=True, gc=False):
    """A lock that a transaction was given: the key's value (None: absent) and version.

    A value that ends is `packed`.

    Under the lock of an id: the original's result when the transaction repeats one, else None.
    Under that of ranges: what the shard has found of them (`ranges.answer`).
    ``left_out``: so many bytes has the value, which is not here, nor its version: the transaction
    meets too much, whatever it is.
    """

    seq: int
    lock: bytes
    value: bytes | None
    version: int
    left_out: int = 0


class Released(msgspec.Struct, array_like=True, gc=False):
    """A lock that a transaction gives back: the value that it ``wrote`` (None: deleted), if any.

    A value that ends is `packed`.

    Under the lock of an id: the result, where it is not that of a plain commit.
    """

    seq: int
    lock: bytes
    wrote: bool
    value: bytes | None


class MessagePart(msgspec.Struct, array_like=True, gc=False):
    """Chunk ``chunk`` of ``chunks`` of all that transaction ``seq`` has to say to one shard."""

    seq: int
    chunk: int
    chunks: int


class Locks(Message, frozen=True, kw_only=True):
    """A shard sends an executing partition payloads and locks that were granted.

    Attributes:
        life: the start of the query.
        step: of the shard, in which it sends this.
        feedback_bytes_max: of a block of feedback.
        values_bytes_max: of what the partition executes in a micro-batch.
        payloads: records whose ids live in the shard.
        grants: locks of the shard.
    """

    KIND: ClassVar[str] = "single"

    life: str
    step: int
    feedback_bytes_max: int
    values_bytes_max: int
    payloads: list[Payload]
    grants: list[Granted]


class ReleasedLocks(Message, frozen=True, kw_only=True):
    """An executing partition gives locks back to a shard, through the feedback topic.

    Attributes:
        incarnation: of the pipeline.
        shard: to which it goes.
        life: of the shards' step in which the transactions were executed.
        step: that step.
        more: the shard shall make the partition go on.
        ends: some wrote what ends.
        rows: the locks.
        parts: what this finishes at the shard.
    """

    KIND: ClassVar[str] = "released"

    incarnation: str
    shard: int
    life: str = ""
    step: int = 0
    more: bool = False
    ends: bool = False
    rows: list[Released]
    parts: list[MessagePart]


class FinishedParts(Message, frozen=True, kw_only=True):
    """The other shards are told which transactions `ReleasedLocks` finishes; fields as there."""

    KIND: ClassVar[str] = "parts"

    incarnation: str
    shard: int
    parts: list[MessagePart]
    life: str = ""
    step: int = 0
    ends: bool = False

    @classmethod
    def of(cls, released: ReleasedLocks) -> FinishedParts:
        """Return what is told of locks that come back."""
        return cls(**{name: getattr(released, name) for name in cls.__struct_fields__})


class Swept(Message, frozen=True):
    """A shard tells all shards up to which seq it has told the removals of what has ended.

    ``swept``: that seq. ``shard``: it tells this. ``life``, ``step``: as in `Locks`.
    ``incarnation``, ``at``: as in `frames.messages.Role`.
    """

    KIND: ClassVar[str] = "swept"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    shard: int
    life: str
    step: int
    swept: int
    at: int = -1
