"""Break the real-time gear on purpose: a seed with two gears must notice each of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from unittest import mock

import msgspec
import numpy as np

from simulator.fault_mutations import believe_the_exception
from simulator.value_mutations import together
from streamydb.frames.blobs import first_name
from streamydb.key_processor import base
from streamydb.pipeline.realtime import core, rebase
from streamydb.pipeline.realtime.confirmations import Confirmations, ResolvedGroups
from streamydb.pipeline.realtime.core import Group, OpenBase, RealTimeShard
from streamydb.pipeline.realtime.messages import Executed
from streamydb.pipeline.realtime.overlay import OverlayValues
from streamydb.sorter.state import NEVER
from streamydb.txn_processor import outputs as o

__all__ = ["GEAR_MUTATIONS"]


def _forget_ids() -> Any:
    """An id that was used before the base is a new one."""

    def nothing(table: Any, _opened: OpenBase) -> Any:
        return np.zeros(len(table), np.int64)

    return mock.patch.object(core, "_used", nothing)


def _read_below() -> Any:
    """Values are those of the base, whatever was written since."""

    def load(self: Any, _at: Any, keys: Sequence[bytes]) -> Any:
        return self._below.load(keys)

    return mock.patch.object(OverlayValues, "load", load)


def _scan_below() -> Any:
    """A range has the keys of the base."""

    def merged(self: Any, start: bytes, _end: bytes) -> Any:
        return self._below.items(start)

    return mock.patch.object(OverlayValues, "_merged", merged)


def _ends_below() -> Any:
    """The base alone says what ends."""

    def due(self: Any, _at: Any, until_ms: int, after: bytes, keys_max: int) -> Any:
        behind = first_name(until_ms + 1)
        return [name for name in self._below.ends(after) if name < behind][:keys_max]

    return mock.patch.object(OverlayValues, "due", due)


def _skip_a_record() -> Any:
    """The base says that it has executed one record more."""
    return _base_with(lambda read: msgspec.structs.replace(read, position=read.position + 1))


def _forget_the_time() -> Any:
    """The effective time of the log begins anew at a base."""
    return _base_with(lambda read: msgspec.structs.replace(read, effective=NEVER))


def _base_with(change: Callable[[Any], Any]) -> Any:
    decode = base.decode_base

    def changed(data: bytes) -> Any:
        found = decode(data)
        partitions = found.state.sorter.partitions
        partitions[0] = change(partitions[0])
        return found

    return mock.patch("simulator.gear_bases.decode_base", changed)


def _forget_constraints() -> Any:
    """A base says that no constraint was declared."""
    decode = base.decode_base

    def changed(data: bytes) -> Any:
        found = decode(data)
        found.state.sorter.declares = False
        return found

    return mock.patch("simulator.gear_bases.decode_base", changed)


def _say_it_early() -> Any:
    """The resolved record is written with the outputs of its group."""
    run = RealTimeShard._run  # noqa: SLF001 - the point

    def early(self: Any, messages: Any) -> Group:
        group = run(self, messages)
        return Group([*group.resolved_records(2), *group.outputs], None, group.seq)

    return mock.patch.object(RealTimeShard, "_run", early)


def _write_covered() -> Any:
    """The gear thinks that what it is told of is what it has executed."""
    play = RealTimeShard.play

    def careless(self: Any, *, leads: bool, covered: int) -> Group:
        return play(self, leads=leads, covered=covered + 3)

    return mock.patch.object(RealTimeShard, "play", careless)


def _rebase_without_tail() -> Any:
    """A newer base is taken for the whole state."""

    def advance(self: Any, _records_max: int) -> RealTimeShard:
        first, successor = self._shard, self._successor
        role = first._state().role  # noqa: SLF001 - the point
        successor._position = first.position  # noqa: SLF001
        successor.play(leads=role.leads, covered=role.covered)
        first.close()
        return cast("RealTimeShard", successor)

    return mock.patch.object(rebase.Rebase, "advance", advance)


def _ignore_partitions() -> Any:
    """The gear goes on when the log gets more partitions, as if it had one."""

    def ignore(_self: Any, table: Any) -> None:
        if "marker" in table.children:
            table.marker.rows.partitions[:] = 1

    return mock.patch.object(RealTimeShard, "_require_one_partition", ignore)


def _count_unseen() -> Any:
    """The driver counts outputs as soon as the worker has told of them."""

    def add(_self: Any, said: Executed) -> list[Executed]:
        return [said]

    return mock.patch.object(Confirmations, "add", add)


def _count_out_of_order() -> Any:
    """The driver counts a group though one before it is not in Kafka."""

    def confirmed(self: Any) -> list[Executed]:
        whole = [number for number, group in self._groups.items() if not group.left]
        return [self._groups.pop(number).said for number in whole]

    return mock.patch.object(Confirmations, "_confirmed", confirmed)


def _announce_what_waits() -> Any:
    """The driver announces the newest group that it has heard of, when one before is confirmed."""
    add, resolved = ResolvedGroups.add, ResolvedGroups._resolved  # noqa: SLF001 - the point

    def note(self: Any, said: Executed) -> Executed | None:
        self.newest = said
        return add(self, said)

    def newest(self: Any, confirmed: Sequence[Executed]) -> Executed | None:
        return None if resolved(self, confirmed) is None else self.newest

    return together(
        mock.patch.object(ResolvedGroups, "add", note),
        mock.patch.object(ResolvedGroups, "_resolved", newest),
    )


def _count_what_waits() -> Any:
    """The driver says of the newest group that it has heard of that its outputs are written."""
    hear = ResolvedGroups.add

    def add(self: Any, said: Executed) -> Executed | None:
        group = hear(self, said)
        self.last = said
        return group

    return mock.patch.object(ResolvedGroups, "add", add)


def _believe_the_exception() -> Any:
    """A fault of ours aborts its transaction at once, in the real-time gear alone."""
    run = RealTimeShard._run  # noqa: SLF001 - the point

    def careless(self: Any, messages: Any) -> Group:
        with believe_the_exception():
            return run(self, messages)

    return mock.patch.object(RealTimeShard, "_run", careless)


def _forget_topic(topic: int) -> Any:
    run = RealTimeShard._run  # noqa: SLF001 - the point

    def incomplete(self: Any, messages: Any) -> Group:
        group = run(self, messages)
        kept = [records for records in group.outputs if records.topic != topic]
        return Group(kept, group.resolved, group.seq)

    return mock.patch.object(RealTimeShard, "_run", incomplete)


def _forget_follow_ups() -> Any:
    """The gear does not append what a workflow is to do next."""
    return _forget_topic(o.FOLLOW_UPS)


def _forget_digests() -> Any:
    """A base has other sums than its values."""
    decode = base.decode_base

    def changed(data: bytes) -> Any:
        found = decode(data)
        if found.state.digests is not None:
            found.state.digests.low += 1
        return found

    return mock.patch("simulator.gear_bases.decode_base", changed)


def _begin_with_an_older_base() -> Any:
    """A base of an earlier time takes the place of the gear's own, with the records it has."""
    return together(
        mock.patch.object(RealTimeShard, "is_newer", return_value=True),
        _rebase_without_tail(),
        mock.patch.object(rebase, "_require_newer"),
    )


GEAR_MUTATIONS: Final[dict[str, Callable[[], Any]]] = {
    "announced": _announce_what_waits,
    "constraints": _forget_constraints,
    "covered": _write_covered,
    "digests": _forget_digests,
    "early": _say_it_early,
    "ends": _ends_below,
    "follow-ups": _forget_follow_ups,
    "ids": _forget_ids,
    "older-base": _begin_with_an_older_base,
    "order": _count_out_of_order,
    "partitions": _ignore_partitions,
    "position": _skip_a_record,
    "range": _scan_below,
    "rulings": _believe_the_exception,
    "tail": _rebase_without_tail,
    "time": _forget_the_time,
    "unseen": _count_unseen,
    "values": _read_below,
    "written": _count_what_waits,
}
"""By name; each gives a context in which the gear is broken."""
