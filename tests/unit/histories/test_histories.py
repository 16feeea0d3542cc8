"""Histories of a correct store pass, those of broken ones do not; files; time for thousands."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histories import (
    Answer,
    AppendOperation,
    Get,
    HistoryError,
    RangeSeen,
    ReadOperation,
    ScanOperation,
    Seen,
    WriteOperation,
    check_history,
    read_history,
    write_history,
)
from histories.ends import with_ends
from histories.linearizability import linearize, register_steps
from histories.records import History, Line, Request
from histories.serializability import check_lists
from histories.steps import RegisterStep
from histories.zones import clashing
from tests.support.histories import Script, Simulation, Store


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), clients=st.integers(1, 8), lost=st.sampled_from([0, 0.1, 0.5]))
def test_histories_of_a_correct_store_pass(seed: int, clients: int, lost: float) -> None:
    history = Simulation(seed, clients, lost=lost).run(150)
    report = check_history(history)
    assert report.ok, report.text()


ANOMALIES_OF_RANGES = {"G-single", "G2", "G-single-predicate", "G2-predicate"}


class Forgetful(Store):
    """Loses a write now and then."""

    def execute(self, request: Request) -> Answer:
        before = dict(self.data)
        answer = super().execute(request)
        if self.rng.random() < 0.05:
            self.data = before
        return answer


class Stale(Store):
    """Strong reads come from the past."""

    def execute(self, request: Request) -> Answer:
        if isinstance(request, WriteOperation | AppendOperation):
            return super().execute(request)
        request.consistency = "snapshot"
        answer = super().execute(request)
        request.consistency = "strong"
        return answer


class Torn(Store):
    """Reads of many keys see each key at a time of its own."""

    def execute(self, request: Request) -> Answer:
        answer = super().execute(request)
        if not isinstance(request, WriteOperation | AppendOperation | Get):
            for key in answer.seen:
                past = self.past[self.rng.randint(max(0, self.seq - 9), self.seq)]
                answer.seen[key] = past.get(key, Seen(None, 0))
        return answer


class Blind(Store):
    """Conditions of writes are not looked at."""

    def execute(self, request: Request) -> Answer:
        if not isinstance(request, WriteOperation) or request.expected is None:
            return super().execute(request)
        return super().execute(WriteOperation(request.id, request.key, request.value))


class Phantoms(Store):
    """Ranges are not looked at by checks, but for the keys that were seen."""

    def is_unchanged(self, _prefix: str, known: RangeSeen) -> bool:
        return all(self.data.get(k, Seen()).value == seen.value for k, seen in known.seen.items())


class Shrinking(Store):
    """Checks of ranges do not see that a key is gone."""

    def is_unchanged(self, prefix: str, known: RangeSeen) -> bool:
        return all((seen.version or 0) <= known.seq for seen in self.range(prefix).values())


class Crowded(Store):
    """How many keys a range has is not looked at."""

    def holds(self, request: AppendOperation) -> bool:
        return super().holds(AppendOperation(request.id, removes=request.removes))


class Repeating(Store):
    """Appends are made twice now and then."""

    def execute(self, request: Request) -> Answer:
        if isinstance(request, AppendOperation) and self.rng.random() < 0.05:
            super().execute(request)
        return super().execute(request)


class Undying(Store):
    """Reads show what has ended until something is written there."""

    def end(self) -> None:
        if self.rng.random() < 0.5:
            super().end()


class Hasty(Store):
    """Keys end a little before their time."""

    def has_ended(self, seen: Seen) -> bool:
        return seen.expires_ms is not None and seen.expires_ms <= self.now_ms + 3


class Clocked(Store):
    """Reads end keys by a clock, which is ahead of commit times."""

    def execute(self, request: Request) -> Answer:
        answer = super().execute(request)
        if isinstance(request, ReadOperation | ScanOperation | Get):
            ahead = self.now_ms + 4
            answer.seen = {
                key: Seen(None, 0) if seen.expires_ms and seen.expires_ms <= ahead else seen
                for key, seen in answer.seen.items()
                if not isinstance(request, ScanOperation) or (seen.expires_ms or ahead + 1) > ahead
            }
            if isinstance(request, ScanOperation):
                answer.pages = [(answer.seq or 0, list(answer.seen))]
                request.limit = 10**6
        return answer


class Reviving(Store):
    """A touch brings back what has ended, or was removed."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.gone: dict[str, Seen] = {}

    def end(self) -> None:
        self.gone |= {key: seen for key, seen in self.data.items() if self.has_ended(seen)}
        super().end()

    def holds(self, request: AppendOperation) -> bool:
        self.data |= {key: self.gone[key] for key in request.touches if key in self.gone}
        return super().holds(request)


@pytest.mark.parametrize(
    ("store", "anomalies"),
    [
        (Undying, {"there-after-its-end", "end-told-late"}),
        (Hasty, {"gone-before-its-end", "end-told-early"}),
        (Clocked, {"gone-before-its-end"}),
        (Reviving, {"there-after-its-end"}),
    ],
)
def test_stores_that_end_keys_at_a_wrong_time_are_caught(
    store: type[Store], anomalies: set[str]
) -> None:
    found = check_history(Simulation(1, 6, store).run(1500)).violations["ends of keys"]
    assert anomalies <= {one.anomaly for one in found}


def test_an_end_that_is_undone_is_a_cycle_without_any_number() -> None:
    history = Simulation(1, 6, Reviving).run(1500)
    for operation in history.operations:
        if operation.answer is not None:
            operation.answer.ts_ms = None
    names = {one.anomaly.removesuffix("-realtime") for one in check_lists(with_ends(history))}
    assert names & ANOMALIES_OF_RANGES


@pytest.mark.parametrize(
    ("store", "checkers"),
    [
        (Forgetful, {"linearizability", "strict serializability"}),
        (Stale, {"linearizability", "strict serializability"}),
        (Torn, {"strict serializability", "seqs and versions"}),
        (Blind, {"linearizability"}),
        (Repeating, {"strict serializability"}),
        (Crowded, {"strict serializability", "bounds of ranges"}),
    ],
)
def test_broken_stores_are_caught(store: type[Store], checkers: set[str]) -> None:
    report = check_history(Simulation(1, 6, store).run(1500))
    assert checkers <= {name for name, found in report.violations.items() if found}


@pytest.mark.parametrize(
    ("store", "anomalies"),
    [(Phantoms, {"G-single-predicate", "G2-predicate"}), (Shrinking, {"G-single"})],
)
def test_stores_without_checks_of_ranges_are_said_to_have_phantoms(
    store: type[Store], anomalies: set[str]
) -> None:
    found = check_history(Simulation(1, 6, store, ending=0).run(1500)).violations
    names = {one.anomaly.removesuffix("-realtime") for one in found["strict serializability"]}
    assert anomalies <= names <= ANOMALIES_OF_RANGES
    others = set(found) - {"strict serializability"}
    assert not any(found[name] for name in others)


@pytest.mark.parametrize("count", [4_000, pytest.param(12_000, marks=pytest.mark.long)])
def test_thousands_of_operations_on_a_key_with_many_unknown(count: int) -> None:
    history = Simulation(7, 24, lost=0.2).run(count)
    assert check_history(history).ok
    script = Script()
    script.lines = [*history.operations]
    last = max(operation.returned_ns or 0 for operation in history.operations)
    script.add(last + 1, last + 2, Get("r/0"), Answer(seen={"r/0": Seen("0.1")}))
    assert "not-linearizable" in script.anomalies()


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), lost=st.sampled_from([0, 0.3]), store=st.sampled_from(
    [Store, Forgetful, Stale, Blind]))  # fmt: skip
def test_zones_never_find_what_the_search_does_not(
    seed: int, lost: float, store: type[Store]
) -> None:
    history: History = Simulation(seed, 4, store, lost).run(60)
    for steps in register_steps(history).values():
        if clashing(steps) is not None:
            assert linearize(steps)[0] is False


def test_an_order_that_is_not_found_in_time_is_said_to_be_undecided() -> None:
    steps = [RegisterStep("write", n, 1000, str(n)) for n in range(20)]
    steps.append(RegisterStep("read", 1001, 1002, "none of these"))
    assert linearize(steps, 1000)[0] is None


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    history = Simulation(3).run(60)
    lines: list[Line] = [*history.operations, *history.watches, *history.deliveries[0]]
    write_history(tmp_path / "a", lines[:30])
    write_history(tmp_path / "b", lines[30:])
    with (tmp_path / "b").open("ab") as file:
        file.write(b'{"kind":"operation","cut off by a kill')
    assert read_history([tmp_path / "a", tmp_path / "b"]) == history


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"type":"watch"}\n')
    with pytest.raises(HistoryError, match=r"a, line 1: "):
        read_history([tmp_path / "a"])
