"""A transaction's additions to a workflow: the records it emits, and the follow-ups that take them.

All follow-ups of a module are numbered 1, 2, 3, ... and are executed in that order. How many were
made and how many were done lies under one key, which every transaction locks that emits or takes a
batch. So these run one after the other, their follow-ups get into the log in order, and a copy of
a follow-up is known by its number after any time: exactly once, whoever appends it how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from streamydb import errors
from streamydb import records as r
from streamydb.limits import WORKFLOW_DEPTH_MAX
from streamydb.procedures.declare import DeclaredKeys
from streamydb.procedures.graph import flow_key
from streamydb.records.names import FOLLOW_UP_PREFIX

if TYPE_CHECKING:
    from streamydb.procedures.modules import Module

_NOTHING: Final = b'{"done":0,"made":0}'


class FollowUpCounts(msgspec.Struct, frozen=True):
    """The numbers of a module's follow-ups that have been executed, and that were made."""

    done: int
    made: int


class StreamRecord(NamedTuple):
    """A record for `<db>.streams`: key (the stream, with its module) and value."""

    key: bytes
    value: bytes


class FollowUp(NamedTuple):
    """A record for the log: its id and value."""

    id: bytes
    value: bytes


class Outputs(NamedTuple):
    """The records that committed calls append to streams, and to the log."""

    emitted: Sequence[StreamRecord] = ()
    follow_ups: Sequence[FollowUp] = ()

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(len(value) for _, value in (*self.emitted, *self.follow_ups))


NO_OUTPUTS: Final = Outputs()
"""Of everything that emits nothing."""


def joined(outputs: Iterable[Outputs]) -> Outputs:
    """Join the outputs of several calls, in their order."""
    each = list(outputs)
    return Outputs(
        [record for one in each for record in one.emitted],
        [record for one in each for record in one.follow_ups],
    )


class Emission(NamedTuple):
    """An emitted record. ``inside``: the procedures that have taken it in the transaction."""

    stream: str
    value: bytes
    inside: tuple[str, ...]


class FollowUpRefused(Exception):  # noqa: N818 - a verdict, not an error
    """A follow-up cannot be made; the text names its procedure and why."""


class Turn(NamedTuple):
    """The turn of a follow-up. ``code``: None if it has come.

    ``key``, ``done``: what is written when it is executed, whatever comes of it.
    """

    code: str | None
    key: str
    done: bytes


_decode_counts = msgspec.json.Decoder(FollowUpCounts).decode


def counts_of(value: bytes | None) -> FollowUpCounts:
    """The counts under a module's flow key."""
    return _decode_counts(value or _NOTHING)


def turn_of(call: r.Call, look: Callable[[str], tuple[bytes | None, int]]) -> Turn | None:
    """Compare the number of a follow-up with the counts that ``look`` shows; None: it is none."""
    if call.batch is UNSET:
        return None
    key = flow_key(call.module)
    counts = counts_of(look(key)[0])
    code = None
    if call.batch.number != counts.done + 1:
        repeated = call.batch.number <= counts.done
        code = errors.BATCH_REPEATED if repeated else errors.BATCH_EARLY
    return Turn(code, key, r.canonical({"done": counts.done + 1, "made": counts.made}))


KeysOf = Callable[[str, dict[str, Any]], DeclaredKeys]
"""The keys of a procedure for its arguments; ValueError if there are none."""


def outputs_of(
    module: Module,
    emissions: list[Emission],
    place: tuple[int, int, str],
    batch: r.TakenBatch | None,
    counts: FollowUpCounts,
    keys_of: KeysOf,
) -> Outputs:
    """The records of a call that emitted ``emissions`` at ``place`` (seq, ts_ms, id).
    Raises FollowUpRefused: a follow-up cannot be made.
    """
    seq, ts_ms, name = place
    root = seq if batch is None else batch.id
    emitted: list[StreamRecord] = []
    follow_ups: list[FollowUp] = []
    for index, emission in enumerate(emissions, start=1):
        stream = f"{module.name}.{emission.stream}"
        head = {"stream": stream, "seq": seq, "index": index, "ts_ms": ts_ms, "id": name}
        value = {**head, "batch": root, "record": msgspec.Raw(emission.value)}
        emitted.append(StreamRecord(stream.encode(), msgspec.json.encode(value)))
    depth = 1 if batch is None else batch.depth + 1
    for stream, target, values in _batches(module, emissions):
        if depth > WORKFLOW_DEPTH_MAX:
            raise FollowUpRefused(f"{target}: depth")
        index = len(follow_ups) + 1
        told = {"id": root, "stream": stream, "number": counts.made + index, "depth": depth}
        id_ = f"{FOLLOW_UP_PREFIX}{seq}/{index}"
        raw = _encoded(module, id_, target, values, told, keys_of)
        follow_ups.append(FollowUp(id_.encode(), raw))
    return Outputs(emitted, follow_ups)


def _batches(module: Module, emissions: list[Emission]) -> list[tuple[str, str, list[bytes]]]:
    """(stream, procedure, records) of every batch, in topological order of the procedures."""
    graph = module.graph
    assert graph is not None  # noqa: S101 - nothing is emitted without
    batches: dict[tuple[str, str], list[bytes]] = {}
    for emission in emissions:
        for target in graph.triggers.get(emission.stream, ()):
            if target not in emission.inside:
                batches.setdefault((emission.stream, target), []).append(emission.value)
    ordered = sorted(batches.items(), key=lambda item: graph.rank[item[0][1]])
    return [(stream, target, values) for (stream, target), values in ordered]


def _encoded(
    module: Module,
    id_: str,
    target: str,
    values: list[bytes],
    told: dict[str, Any],
    keys_of: KeysOf,
) -> bytes:
    """Encode a follow-up's record; refuse one that would not be a valid transaction."""
    args = b'{"batch":[' + b",".join(values) + b"]}"
    try:
        found = keys_of(target, r.decode_value(args))
    except ValueError:
        raise FollowUpRefused(f"{target}: its key function fails") from None
    call: dict[str, Any] = {"procedure": f"{module.name}.{target}", "args": msgspec.Raw(args)}
    call["keys"] = found.keys
    if found.reads:
        call["reads"] = found.reads
    if found.ranges:
        call["ranges"] = found.ranges
    raw = msgspec.json.encode({"id": id_, "call": {**call, "batch": told}})
    checked = r.decode(raw)
    if not isinstance(checked, r.Transaction):
        raise FollowUpRefused(f"{target}: {getattr(checked, 'code', '')}")
    return raw
