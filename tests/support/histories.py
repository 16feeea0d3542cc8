"""What the tests of the history checkers share: operations by hand, and a correct serial store."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from histories import (
    Answer,
    AppendOperation,
    Delivered,
    Delivery,
    Get,
    History,
    HistoryReport,
    Operation,
    RangeSeen,
    ReadOperation,
    ScanOperation,
    Seen,
    WatchOperation,
    WriteOperation,
    check_history,
)
from histories.records import Line, Request
from histories.workload import HistoryClient, Shape


class Script:
    """A history by hand: each operation says when it began and ended."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(
        self,
        began: int,
        ended: int | None,
        request: Request,
        answer: Answer | None = None,
        *,
        client: int | None = None,
        outcome: str = "",
    ) -> None:
        wanted: Any = outcome or ("unknown" if ended is None else "ok")
        self.lines.append(
            Operation(
                client=len(self.lines) if client is None else client, session=0, invoked_ns=began,
                returned_ns=ended, request=request, outcome=wanted,
                answer=Answer() if answer is None and wanted == "ok" else answer,
            )
        )  # fmt: skip

    def put(self, began: int, ended: int | None, value: Any, **more: Any) -> None:
        self.add(began, ended, WriteOperation(f"w{len(self.lines)}", "x", value), **more)

    def swap(
        self, began: int, ended: int | None, old: Any, new: Any, *, done: bool = True, **more: Any
    ) -> None:
        request = WriteOperation(f"w{len(self.lines)}", "x", new, Seen(old))
        answer = None if ended is None else Answer(committed=done)
        self.add(began, ended, request, answer, **more)

    def get(self, began: int, ended: int, value: Any, **more: Any) -> None:
        self.add(began, ended, Get("x"), Answer(seen={"x": Seen(value)}), **more)

    def txn(
        self, began: int, ended: int | None, appends: dict[str, Any], reads: dict[str, Any],
        *, scans: dict[str, dict[str, Any]] | None = None, before: dict[str, Any] | None = None,
        removes: Sequence[str] = (), most: dict[str, int] | None = None,
        touches: Sequence[str] = (), ttls: dict[str, int] | None = None,
        at: tuple[int, int] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """Append elements (one, or a list of them), remove and touch lists, and read lists and
        ranges, which must have been as ``before``; ``at``: its seq and commit time.
        """
        new = {key: e if isinstance(e, list) else [e] for key, e in appends.items()}
        known = {p: RangeSeen(0, _seen(entries)) for p, entries in (before or {}).items()}
        request = AppendOperation(
            f"t{len(self.lines)}", new, list(reads), list(removes), list(touches), ttls or {},
            list(scans or {}), known, most or {},
        )  # fmt: skip
        ranges = {prefix: _seen(entries) for prefix, entries in (scans or {}).items()}
        seq, ts_ms = at or (None, None)
        answer = Answer(seq=seq, ts_ms=ts_ms, seen=_seen(reads), ranges=ranges)
        self.add(began, ended, request, None if ended is None else answer, **more)

    def scan(self, began: int, ended: int, seq: int, prefix: str, seen: dict[str, Seen]) -> None:
        """Scan a range at a seq."""
        self.add(began, ended, ScanOperation(prefix, consistency="snapshot"),
                 Answer(seq=seq, seen=seen))  # fmt: skip

    def watched(self, *changes: tuple[int, str, Any, Any]) -> None:
        """What a watcher from the beginning is told: seqs, keys, values before and after."""
        self.lines.append(WatchOperation(watcher=0, prefix="", since=0, began_ns=0))
        for seq, together in itertools.groupby(changes, key=lambda change: change[0]):
            told = [Delivered(*change[1:]) for change in together]
            self.lines.append(
                Delivery(watcher=0, seq=seq, received_ns=seq, connection=1, changes=told)
            )

    def read(
        self, began: int, ended: int, reads: dict[str, Any], kind: Any = "strong",
        min_version: int | None = None, **more: Any,
    ) -> None:  # fmt: skip
        answer = Answer(seen={key: Seen(value) for key, value in reads.items()}, seq=min_version)
        self.add(began, ended, ReadOperation(list(reads), kind, min_version), answer, **more)

    def check(self) -> HistoryReport:
        return check_history(History.of(self.lines))

    def anomalies(self) -> set[str]:
        """The names of what is found."""
        found = self.check().violations.values()
        return {violation.anomaly for some in found for violation in some}


def _seen(values: dict[str, Any]) -> dict[str, Seen]:
    return {key: Seen(value) for key, value in values.items()}


Case = Callable[[Script], None]


def _called(case: object) -> str:
    """The name of a case."""
    return getattr(case, "__name__", str(case))


def _anomalies_of(case: Case) -> set[str]:
    script = Script()
    case(script)
    return script.anomalies()


class Cases:
    """Histories by hand.

    Attributes:
        wrong: those that have an anomaly, by its name.
        sound: those that have none.
    """

    def __init__(self) -> None:
        self.wrong: list[tuple[str, Case]] = []
        self.sound: list[Case] = []

    def bad(self, anomaly: str) -> Callable[[Case], Case]:
        def note(case: Case) -> Case:
            self.wrong.append((anomaly, case))
            return case

        return note

    def good(self, case: Case) -> Case:
        self.sound.append(case)
        return case

    def tests(self) -> tuple[Callable[[str, Case], None], Callable[[Case], None]]:
        """Two tests: each wrong one is caught by its name, and nothing is found in a sound one."""

        @pytest.mark.parametrize(("anomaly", "case"), self.wrong, ids=_called)
        def caught(anomaly: str, case: Case) -> None:
            assert anomaly in _anomalies_of(case)

        @pytest.mark.parametrize("case", self.sound, ids=_called)
        def sound(case: Case) -> None:
            assert _anomalies_of(case) == set()

        return caught, sound


class Store:
    """A correct serial store with versions, ends, snapshots of the past, and unreliable answers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seq = self.now_ms = 0
        self.data: dict[str, Seen] = {}
        self.past: list[dict[str, Seen]] = [{}]

    def execute(self, request: Request) -> Answer:
        """What a request is told, and what it leaves."""
        if isinstance(request, WriteOperation | AppendOperation):
            return self._write(request)
        floor = request.min_version or 0
        seq = self.seq if request.consistency == "strong" else self.rng.randint(floor, self.seq)
        state = self.past[seq]
        if isinstance(request, ScanOperation):
            keys = sorted((k for k in state if k.startswith(request.prefix)), key=str.encode)
            pages = [keys[i : i + request.limit] for i in range(0, len(keys), request.limit)]
            seen = {key: state[key] for key in keys}
            return Answer(seq=seq, seen=seen, pages=[(seq, page) for page in pages or [[]]])
        keys = [request.key] if isinstance(request, Get) else request.keys
        return Answer(seq=seq, seen={key: state.get(key, Seen(None, 0)) for key in keys})

    def end(self) -> None:
        """Remove what has ended."""
        for key in [key for key, seen in self.data.items() if self.has_ended(seen)]:
            del self.data[key]

    def has_ended(self, seen: Seen) -> bool:
        return seen.expires_ms is not None and seen.expires_ms <= self.now_ms

    def _write(self, request: WriteOperation | AppendOperation) -> Answer:
        self.seq += 1
        self.now_ms += self.rng.choice([0, 0, 1, 1, 2, 5])
        self.end()
        answer = Answer(seq=self.seq, ts_ms=self.now_ms)
        if isinstance(request, AppendOperation):
            answer.committed = self.holds(request)
            if answer.committed:
                self._append(request, answer)
        else:
            here = self.data.get(request.key, Seen(None, 0))
            wanted = request.expected
            answer.committed = wanted is None or (wanted.version or 0) == here.version
            if answer.committed and request.value is None:
                self.data.pop(request.key, None)
            elif answer.committed:
                self.data[request.key] = Seen(request.value, self.seq)
        self.past.append(dict(self.data))
        return answer

    def holds(self, request: AppendOperation) -> bool:
        """Whether the checks of a transaction hold."""
        return (
            all(key in self.data for key in (*request.removes, *request.touches))
            and all(self.is_unchanged(p, known) for p, known in request.unchanged.items())
            and all(len(self.range(p)) <= most for p, most in request.most.items())
        )

    def is_unchanged(self, prefix: str, known: RangeSeen) -> bool:
        now = self.range(prefix).values()
        newest = max((seen.version or 0 for seen in now), default=0)
        return len(now) == len(known.seen) and newest <= known.seq

    def range(self, prefix: str) -> dict[str, Seen]:
        """The keys of a range."""
        return {key: self.data[key] for key in sorted(self.data) if key.startswith(prefix)}

    def _append(self, request: AppendOperation, answer: Answer) -> None:
        for key, new in request.appends.items():
            old = self.data.get(key, Seen([]))
            end_ms = old.expires_ms
            if key in request.ttls:
                end_ms = self.now_ms + request.ttls[key]
            self.data[key] = Seen([*old.value, *new], self.seq, end_ms)
        for key in request.touches:
            if key in self.data:
                end_ms = self.now_ms + request.ttls[key]
                self.data[key] = Seen(self.data[key].value, self.seq, end_ms)
        for key in request.removes:
            self.data.pop(key, None)
        answer.seen = {k: Seen(self.data.get(k, Seen()).value) for k in request.reads}
        answer.ranges = {prefix: self.range(prefix) for prefix in request.scans}


class Simulation:
    """Clients with overlapping operations on a `Store`, some answers lost, and a watcher."""

    def __init__(
        self, seed: int, clients: int = 6, store: type[Store] = Store, lost: float = 0.1,
        ending: float = 0.4,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.store = store(self.rng)
        self.lost = lost
        self.ids = itertools.count()
        shape = Shape(registers=2, lists=4, generation=30, session=25, ttl_ms=100,
                      ending=ending)  # fmt: skip
        self.clients = [
            HistoryClient(n, shape, self.rng, lambda: f"t{next(self.ids)}") for n in range(clients)
        ]
        self.lines: list[Line] = []

    def run(self, operations: int) -> History:
        """A history of about so many operations."""
        now = itertools.count()
        idle, under_way = list(self.clients), list[list[Any]]()
        while operations > 0 or under_way:
            moves = [0] * bool(idle and operations > 0) + [1] * (2 * bool(under_way))
            if self.rng.choice(moves) == 0:
                client = idle.pop(self.rng.randrange(len(idle)))
                under_way.append([client, next(now), client.next(), None])
                operations -= 1
                continue
            one = self.rng.choice(under_way)
            client, began, request, answer = one
            if answer is None:
                one[3] = self.store.execute(request)
                continue
            under_way.remove(one)
            idle.append(client)
            self._record(client, began, next(now), request, answer)
        self._watch()
        return History.of(self.lines)

    def _record(
        self, client: HistoryClient, began: int, ended: int, request: Request, answer: Answer
    ) -> None:
        lost = (
            isinstance(request, WriteOperation | AppendOperation) and self.rng.random() < self.lost
        )
        operation = Operation(
            client=client.number, session=client.session, invoked_ns=began, request=request,
            outcome="unknown" if lost else "ok", returned_ns=None if lost else ended,
            answer=None if lost else answer,
        )  # fmt: skip
        client.learn(operation)
        self.lines.append(operation)

    def _watch(self) -> None:
        """What a watcher from the beginning gets."""
        self.lines.append(WatchOperation(watcher=0, prefix="", since=0, began_ns=0))
        for seq, (before, after) in enumerate(pairwise(self.store.past), 1):
            keys = [k for k in sorted(before.keys() | after.keys())
                    if before.get(k) != after.get(k)]  # fmt: skip
            changes = [
                Delivered(k, before.get(k, Seen()).value, after.get(k, Seen()).value) for k in keys
            ]
            if changes:
                delivery = Delivery(
                    watcher=0, seq=seq, received_ns=seq, connection=1, changes=changes
                )
                self.lines.append(delivery)
