"""The base: the small part of a shard's state that is right for its local file of values.

The real-time gear keeps no state of its own. It begins with what the micro-batch gear has put into
the local files of the shard: the values, the tables of ids, and this record, which says at which
seq they stand and from which offset on the log is to be executed. The three belong together: the
record is written in a transaction of the file, and names the position of the values.

Only a database of one shard and one partition has bases: its order is that of its offsets, so no
record waits in the sorter beside the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.frames.blobs import Blob
from streamydb.frames.plans import OpenPlan
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.key_processor.state import ShardRole, ShardState
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.records.formats import UNREADABLE
from streamydb.records.gears import database_obstacle
from streamydb.sorter.state import PartitionState, SorterState

FORMAT: Final = 1

_NEVER_MERGED: Final = 1 << 62
"""The size of a blob that is larger than all others together."""


class Base(msgspec.Struct, frozen=True):
    """A shard behind a plan, without values and ids.

    ``state``: of the shard, as if it had read the log up to the plan's last record and had no plan
    in flight; its ``values`` name the position of the file, without blobs. ``id_tables``: the
    tables that have all ids which the shard remembers. ``read``: how far the shard had read the
    log then, which is at least that far. A later run of the pipeline sees by it if the log still is
    the one that was executed.
    """

    state: ShardState
    id_tables: Sequence[str]
    format: int = FORMAT
    read: PartitionState | None = None

    @property
    def position(self) -> int:
        """The first offset of the log that is not executed yet."""
        return self.state.sorter.partitions[0].position


def has_base(config: ShardConfig) -> bool:
    """Return True if the states of a database have bases."""
    return database_obstacle(config.shards, config.partitions, config.grouping) is None


def base_of(state: ShardState, plan: OpenPlan, id_tables: Sequence[str]) -> bytes | None:
    """Encode the base behind a plan whose feedback ``state`` has just applied.

    Return None if there is none: the log has got more partitions.
    """
    sorter, config = state.sorter, state.config
    read = sorter.partitions.get(0)
    if not has_base(config) or plan.position < 0 or read is None or len(sorter.partitions) > 1:
        return None
    if any(partitions > 1 for partitions, _ in read.named):
        return None
    base = ShardState(
        config,
        SorterState(1, {0: PartitionState(plan.ts, plan.position)}, declares=sorter.declares),
        _in_file(state.values),
        IdWindowState(config.id_window, span_ms=state.ids.span_ms),
        seq=plan.seq,
        ts=plan.ts,
        plan=plan.number,
        resolved_offsets={0: plan.position},
        role=ShardRole(leads=False, covered=plan.seq),
        digests=state.digests,
        expires=state.expires,
    )
    return msgspec.msgpack.encode(Base(base, list(id_tables), read=read))


def describe(meta: ShardState, plan: OpenPlan, values: ShardValues, ids: IdWindow) -> None:
    """Note beside the values what the real-time gear needs to begin with them, behind a plan."""
    tables = ids.shared_tables(plan.seq) if has_base(meta.config) else None
    base = None if tables is None else base_of(meta, plan, tables)
    if base is not None:
        values.describe(base)


def _in_file(values: ValuesState) -> ValuesState:
    """Return the index of values that lie in the file and in no blob:
    no other is merged with it.
    """
    applied, digest = values.applied, values.digest
    blobs = [Blob("base", _NEVER_MERGED, 1, applied, digest)] if applied else []
    return ValuesState(applied, digest, blobs)


def decode_base(data: bytes) -> Base:
    """Decode a base. Raises ConfigurationError: it was written by another release."""
    try:
        base = msgspec.msgpack.decode(data, type=Base)
    except UNREADABLE as error:
        raise ConfigurationError(f"the base of this shard cannot be read: {error}") from error
    if base.format != FORMAT:
        what = f"the base of this shard has format {base.format}, this release reads {FORMAT}"
        raise ConfigurationError(what)
    return base
