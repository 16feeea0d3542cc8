"""Two executions side by side: as it was, and with other rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from streamydb.local.own_process import no_collection
from streamydb.procedures.follow_ups import counts_of
from streamydb.records import CONSTRAINTS_KEY
from streamydb.records.names import FLOWS_PREFIX
from streamydb.verify.oracle.order import Ordered
from streamydb.verify.oracle.outputs import OutputRecord
from streamydb.verify.whatif.differences import KINDS, WhatIfDifference, between, of_values
from streamydb.verify.whatif.other import OtherOracle, OtherRules, ResumedOracle
from streamydb.verify.whatif.stretch import (
    History,
    Progress,
    RememberedIds,
    Stretch,
    WhatIfError,
    released_after,
    take_over,
)

_NOTED: Final = 5_000  # transactions from one word of progress to the next


class KindReport(msgspec.Struct):
    """The number of differences of one kind, and the first of them."""

    count: int = 0
    first: WhatIfDifference | None = None


class WaitingFollowUps(msgspec.Struct):
    """Follow-ups that were made and not executed by the end of the stretch, in each execution."""

    before: int = 0
    after: int = 0


class WhatIfReport(msgspec.Struct):
    """The answer.

    Attributes:
        from_seq: the first transaction of the stretch.
        to_seq: the last; one less than the first if there was none.
        started_at: the seq of the state that the executions began with; 0: the log's beginning.
        calls: how many calls ran a replaced module.
        kinds: by kind of difference.
        differing: how many transactions differ.
        keys: how many keys each execution has at the end.
        waiting: follow-ups without a place in the log.
    """

    database: str
    from_seq: int
    to_seq: int = 0
    started_at: int = 0
    calls: int = 0
    kinds: dict[str, KindReport] = msgspec.field(
        default_factory=lambda: {kind: KindReport() for kind in KINDS}
    )
    differing: int = 0
    keys: int = 0
    waiting: WaitingFollowUps = msgspec.field(default_factory=WaitingFollowUps)
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        return not any(kind.count for kind in self.kinds.values())

    def note(self, difference: WhatIfDifference) -> None:
        kind = self.kinds[difference.kind]
        kind.count += 1
        kind.first = kind.first or difference


def whatif(
    history: History,
    rules: OtherRules,
    stretch: Stretch,
    keep: Callable[[WhatIfDifference], None] = lambda _: None,
    progress: Progress = lambda _what, _done, _total: None,
) -> WhatIfReport:
    """Execute a stretch twice and compare.

    ``keep``: is given every difference, in order of seq; then those of the final values.

    Raises:
        WhatIfError: the log ends before the stretch does; a constraint makes no sense, or is to be
            dropped and not there.
        BackupError: records are not there, or a file is damaged.
        ModuleMissing: the code of a procedure that is not replaced is not there.
    """
    started_s = time.monotonic()
    report = WhatIfReport(history.database, stretch.first)
    with no_collection():
        was, batches = _begun(history, stretch.first)
        report.started_at = was.next_seq - 1
        run = _WhatIfRun(history, rules, stretch, report, keep)
        now = run.executed(was, _noted(history, was, stretch, batches, progress))
        run.finish(was, now)
    report.seconds = time.monotonic() - started_s
    return report


def executed_before(
    history: History, seq: int, progress: Progress = lambda _what, _done, _total: None
) -> dict[str, tuple[bytes, int]]:
    """The values and versions of all keys right before a seq.

    Raises:
        WhatIfError: the log ends before that.
        BackupError: records are not there, or a file is damaged.
        ModuleMissing: the code of a procedure is not there.
    """
    with no_collection():
        was, batches = _begun(history, seq)
        for record in _noted(history, was, Stretch(seq, seq), batches, progress):
            if was.next_seq == seq:
                break
            was.apply(record.value, record.partition, record.offset, record.ts_ms)
    if was.next_seq < seq:
        raise WhatIfError(f"the log of {history.database} ends at seq {was.next_seq - 1}")
    return was.state


def _begun(history: History, first: int) -> tuple[ResumedOracle, Iterator[list[Ordered]]]:
    """An oracle at the newest known state before a seq, and the records that come after that."""
    state = history.states(first - 1)
    was = ResumedOracle(history, RememberedIds(state, history.id_window))
    if state is not None:
        take_over(was, state)
    return was, released_after(history, {} if state is None else state.about.positions)


def _noted(
    history: History,
    was: ResumedOracle,
    stretch: Stretch,
    batches: Iterator[list[Ordered]],
    progress: Progress,
) -> Iterator[Ordered]:
    """Yield the records one by one, and tell how far it is."""
    total = min(stretch.last or 1 << 62, sum(history.ends.values()))
    for record in (record for batch in batches for record in batch):
        seq = was.next_seq - 1
        if seq % _NOTED == 0:
            what = "on the way to the stretch" if seq + 1 < stretch.first else "executing twice"
            progress(what, seq, max(total, seq))
        yield record


class _WhatIfRun(NamedTuple):
    """The parts of a run that do not change."""

    history: History
    rules: OtherRules
    stretch: Stretch
    report: WhatIfReport
    keep: Callable[[WhatIfDifference], None]

    def executed(self, was: ResumedOracle, records: Iterator[Ordered]) -> OtherOracle:
        """Execute once up to the stretch, twice within it."""
        first, last = self.stretch
        now = self._other(was, records) if was.next_seq == first else None
        for record in records:
            seq = was.next_seq
            if last is not None and seq > last:
                break
            outputs = was.apply(record.value, record.partition, record.offset, record.ts_ms)
            if now is not None:
                self._compare(seq, outputs, now.beside(outputs, record))
            elif was.next_seq == first:
                now = self._other(was, records)
        end = was.next_seq - 1
        if now is None or (last is not None and end < last):
            raise WhatIfError(
                f"the log of {self.history.database} ends at seq {end}, and the stretch from "
                f"{first} to {last or 'its end'} was asked for"
            )
        self.report.to_seq = end
        return now

    def _other(self, was: ResumedOracle, records: Iterator[Ordered]) -> OtherOracle:
        """The execution with other rules, from where the stretch begins."""
        first, last = self.stretch
        constraints_then = _constraints(was)
        absent = next((name for name in self.rules.dropped if name not in constraints_then), None)
        if absent is None:
            return OtherOracle(self.history, self.rules, was)
        for record in records:
            if last is not None and was.next_seq > last:
                break
            current = was.state.get(CONSTRAINTS_KEY)
            was.apply(record.value, record.partition, record.offset, record.ts_ms)
            if was.state.get(CONSTRAINTS_KEY) is not current and absent in _constraints(was):
                seq = was.next_seq - 1
                raise WhatIfError(
                    f"there is no constraint {absent!r} before seq {first}, where it would be "
                    f"dropped: the log declares it at seq {seq}. Begin after that (--from-seq "
                    f"{seq + 1})"
                )
        raise WhatIfError(
            f"there is no constraint {absent!r} to drop before seq {first}, and none is declared "
            f"up to seq {was.next_seq - 1}"
        )

    def _compare(self, seq: int, was: list[OutputRecord], now: list[OutputRecord]) -> None:
        differences = list(between(seq, was, now))
        self.report.differing += bool(differences)
        self._note(differences)

    def _note(self, each: Iterable[WhatIfDifference]) -> None:
        for difference in each:
            self.report.note(difference)
            self.keep(difference)

    def finish(self, was: ResumedOracle, now: OtherOracle) -> None:
        self._note(of_values(was.state, now.state))
        report = self.report
        report.calls, report.keys = now.calls, len(was.state)
        report.waiting = WaitingFollowUps(_waiting(was), _waiting(now))


def _constraints(oracle: ResumedOracle) -> dict[str, object]:
    value, _ = oracle.state.get(CONSTRAINTS_KEY, (b"{}", 0))
    return msgspec.json.decode(value, type=dict[str, object])


def _waiting(oracle: ResumedOracle) -> int:
    flows = (value for key, (value, _) in oracle.state.items() if key.startswith(FLOWS_PREFIX))
    return sum(counts.made - counts.done for counts in map(counts_of, flows))
