"""Functions as transactions: no lost update, own writes, snapshots, scans, read-only functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamydb.client import (
    AsyncView,
    CheckFailedError,
    ClosedError,
    ConflictError,
    InvalidJsonError,
    InvalidParameterError,
    InvalidTransactionError,
    Options,
    OutcomeUnknownError,
    Session,
    SnapshotGoneError,
    UnsafeScanError,
    View,
)
from streamydb.testing.clients import MemoryHost

Connect = Callable[..., Any]


def increment(view: View) -> int:
    value: int = view.get("n", 0) + 1
    view.put("n", value)
    return value


def in_threads(count: int, function: Callable[[], object]) -> None:
    """Run a function in several threads; an exception in one of them is raised."""
    failed: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def patient() -> Options:
    return Options(conflicts_max=1_000, backoff_s=0.001, backoff_max_s=0.004)


def test_no_update_is_lost(connect: Connect, host: MemoryHost) -> None:
    taken: list[int] = []

    def work() -> None:
        client = connect(options=patient())
        taken.extend([client.run(increment) for _ in range(6)])

    in_threads(4, work)
    assert sorted(taken) == list(range(1, 25))
    assert connect().get("n") == 24
    assert host.faults.sent["Send"] >= 24


def test_no_update_is_lost_when_answers_are(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=patient())
    for number in range(1, 6):
        host.faults.lost = 2
        assert client.run(increment) == number
    assert client.get("n") == 5


def test_write_skew_is_impossible(connect: Connect) -> None:
    """Two doctors on call; each goes home only if the other stays (Cahill et al. 2008)."""
    connect().atomic().put("a", 1).put("b", 1).commit()
    together = threading.Barrier(2, timeout=10)

    def leave(own: str) -> Callable[[Any], bool]:
        calls: list[int] = []

        def function(view: Any) -> bool:
            on_call = sum(view.read(["a", "b"]).values())
            calls.append(on_call)
            if len(calls) == 1:
                together.wait()
            if on_call < 2:
                return False
            view.put(own, 0)
            return True

        return function

    wishes = iter(["a", "b"])
    left: list[bool] = []
    in_threads(2, lambda: left.append(connect().run(leave(next(wishes)))))
    assert sorted(left) == [False, True]
    assert sum(connect().read(["a", "b"]).values()) == 1


def test_a_conflict_calls_the_function_again_at_a_newer_snapshot(
    connect: Connect, host: MemoryHost
) -> None:
    other = connect()
    seen: list[tuple[int, int | None]] = []

    def function(view: Any) -> int:
        value = view.get("n", 0)
        seen.append((value, view.seq))
        if len(seen) < 3:
            other.put("n", 10 * len(seen))
        view.put("n", value + 1)
        return int(value)

    assert connect(options=patient()).run(function) == 20
    assert [value for value, _ in seen] == [0, 10, 20]
    assert [seq or 0 for _, seq in seen] == sorted({seq or 0 for _, seq in seen})
    assert other.get("n") == 21
    assert host.faults.sent["Send"] == 5


def test_conflicts_without_end_are_given_up(connect: Connect) -> None:
    other = connect()

    def function(view: Any) -> None:
        view.put("n", view.get("n", 0) + 1)
        other.put("n", 7)

    with pytest.raises(ConflictError) as conflict:
        connect(options=patient()).run(function, conflicts_max=3)
    assert [f.key for f in conflict.value.failed] == ["n"]
    assert other.get("n") == 7
    assert other.session.seq == 6


def test_pauses_grow_and_are_bounded() -> None:
    session = Session(Options(backoff_s=0.5, backoff_max_s=3), random=lambda: 0.5)
    retry = session.retry()
    assert [retry.pause_s() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    session = Session(Options(backoff_s=0.5), random=lambda: 0.0)
    assert session.retry().pause_s() == 0


def test_own_writes_are_seen(client: Any) -> None:
    client.put("a", 1)
    client.put("gone", 1)

    def function(view: Any) -> list[Any]:
        view.put("a", {"x": [1.0]})
        view.put("fresh", 2)
        view.delete("gone")
        seen = [view.get("a"), view.get("fresh"), view.get("gone", "no"), view.get("other")]
        view.get("a")["x"].append(9)  # a copy
        view.delete("fresh")
        return [*seen, view.get("a"), view.get("fresh"), view.read(["a", "gone"])]

    a = {"x": [1]}
    assert client.run(function) == [a, 2, "no", None, a, None, {"a": a, "gone": None}]
    assert dict(client.read(["a", "fresh", "gone"])) == {"a": a, "fresh": None, "gone": None}


def test_what_is_written_later_does_not_change_with_the_object(client: Any) -> None:
    def function(view: Any) -> None:
        value = [1]
        view.put("a", value)
        value.append(2)

    client.run(function)
    assert client.get("a") == [1]


def test_blind_writes_do_not_conflict(connect: Connect) -> None:
    other = connect()

    def function(view: Any) -> None:
        view.put("a", 1)
        other.put("a", 2)

    connect().run(function, conflicts_max=1)
    assert other.get("a") == 1


def test_reads_in_a_function_show_one_snapshot(connect: Connect) -> None:
    other = connect()
    other.atomic().put("a", 1).put("b", 1).commit()

    def function(view: Any) -> tuple[Any, Any]:
        first = view.get("a")
        other.atomic().put("a", 2).put("b", 2).commit()
        return first, view.get("b")

    assert connect().run(function) == (1, 1)


def test_a_function_without_writes_leaves_the_log_alone(client: Any, host: MemoryHost) -> None:
    client.put("a", 1)
    before = len(host.database.log.records)
    assert client.run(lambda view: view.get("a")) == 1
    assert client.run(lambda view: [e.value for e in view.scan()]) == [1]
    assert client.run(lambda _: "nothing at all") == "nothing at all"
    assert len(host.database.log.records) == before


def test_a_function_without_writes_sees_what_was_committed_before_it(
    connect: Connect, host: MemoryHost
) -> None:
    host.database.resolving = False
    connect().put("a", 1)
    host.do(lambda: host.portal.loop.call_later(0.01, host.database.resolve))
    assert connect().run(lambda view: view.get("a")) == 1


def test_a_function_scans_and_writes(client: Any) -> None:
    for number in range(5):
        client.put(f"a/{number}", number)

    def total(view: Any) -> int:
        found = [*view.scan("a/")]
        for entry in found:
            view.put(entry.key, entry.value + 1)
        view.put("total", sum(entry.value for entry in found))
        return len(found)

    assert client.run(total) == 5
    assert client.get("total") == 10
    assert client.get("a/4") == 5


@pytest.mark.parametrize("change", ["add", "write", "delete", "replace"])
@pytest.mark.parametrize("limit", [None, 2])
def test_what_was_scanned_is_so_still_or_the_function_begins_again(
    connect: Connect, change: str, limit: int | None
) -> None:
    client, other = connect(options=Options(page_entries=2)), connect()
    for name in ("a/1", "a/3", "a/5"):
        client.put(name, 1)
    calls: list[list[str]] = []

    def count(view: Any) -> None:
        found = [entry.key for entry in view.scan("a/", limit=limit)]
        if not calls:  # somebody else comes between
            if change in ("delete", "replace"):
                other.delete("a/1")
            if change in ("add", "replace"):
                other.put("a/2", 1)
            if change == "write":
                other.put("a/3", 2)
        calls.append(found)
        view.put("count", len(found))

    client.run(count)
    assert len(calls) == 2
    assert client.get("count") == len(calls[-1])


@pytest.mark.parametrize("behind", ["a/4", "b"])
def test_what_a_scan_has_not_seen_does_not_disturb(connect: Connect, behind: str) -> None:
    client, other = connect(options=Options(page_entries=1)), connect()
    for name in ("a/1", "a/3", "a/5"):
        client.put(name, 1)
    calls: list[list[str]] = []

    def first_two(view: Any) -> None:
        entries = view.scan("a/")
        calls.append([next(entries).key, next(entries).key])
        other.put(behind, 1)
        view.put("a/1", 2)

    client.run(first_two)
    assert calls == [["a/1", "a/3"]]


def test_a_scan_shows_what_was_written_before_it_began(connect: Connect) -> None:
    client = connect(options=Options(page_entries=1))
    for name in ("a/1", "a/3", "a/5"):
        client.put(name, 1)

    def write_then_scan(view: Any) -> list[Any]:
        view.put("a/2", 2)
        view.put("a/6", [6])
        view.put("a/3", 3)
        view.delete("a/1")
        return [(entry.key, entry.value, entry.version) for entry in view.scan("a/")]

    def write_ahead(view: Any) -> list[str]:
        seen = []
        for entry in view.scan("a/"):
            view.put(entry.key + "0", 1)
            view.delete("a/9")
            seen.append(entry.key)
        return seen

    found = [("a/2", 2, 0), ("a/3", 3, 2), ("a/5", 1, 3), ("a/6", [6], 0)]
    assert client.run(write_then_scan) == found
    assert [entry.key for entry in client.scan("a/")] == [key for key, _, _ in found]
    assert client.run(write_ahead) == ["a/2", "a/3", "a/5", "a/6"]
    assert len(list(client.scan("a/"))) == 8


def test_limits_count_what_a_scan_shows(connect: Connect) -> None:
    client = connect(options=Options(page_entries=2))
    for number in range(6):
        client.put(f"a/{number}", number)

    def function(view: Any) -> list[list[Any]]:
        for number in (0, 1, 3):
            view.delete(f"a/{number}")
        view.put("a/20", 20)
        return [[e.value for e in view.scan("a/", limit=limit)] for limit in (0, 1, 2, 3, 4, 9)]

    everything = [2, 20, 4, 5]
    assert client.run(function) == [everything[:limit] for limit in (0, 1, 2, 3, 4, 9)]


@pytest.mark.parametrize("bounds", [{}, {"start": "a"}, {"end": "b"}, {"prefix": "$"}])
def test_a_range_without_end_or_of_the_database_is_read_only(
    client: Any, bounds: dict[str, str]
) -> None:
    client.put("a", 1)
    assert client.run(lambda view: len(list(view.scan(**bounds)))) in (0, 1)
    with pytest.raises(UnsafeScanError, match="with an end"):
        client.run(lambda view: view.put("b", len(list(view.scan(**bounds)))))
    assert client.get("b") is None


def test_a_scan_shows_the_snapshot_of_the_reads(connect: Connect) -> None:
    other = connect()
    other.put("a/1", 1)

    def function(view: Any) -> list[Any]:
        first = view.get("a/1")
        other.put("a/2", 2)
        other.put("a/1", 3)
        return [first, *(entry.value for entry in view.scan("a/", limit=5))]

    assert connect().run(function) == [1, 1]


def test_an_exception_of_the_function_writes_nothing(client: Any) -> None:
    def function(view: Any) -> None:
        view.put("a", 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.run(function)
    assert client.get("a") is None


def test_a_coroutine_function_is_not_for_threads(host: MemoryHost) -> None:
    """It would return a coroutine that nobody awaits, and write nothing."""

    async def writes(view: Any) -> None:
        view.put("a", 1)

    client: Any = host.connect()
    with pytest.raises(InvalidParameterError, match="connect_async"):
        client.run(writes)


def test_a_failed_check_of_a_call_within_is_not_taken_for_a_conflict(client: Any) -> None:
    calls: list[int] = []

    def function(_: Any) -> None:
        calls.append(1)
        client.atomic().check("a", exists=True).commit()

    with pytest.raises(CheckFailedError) as failed:
        client.run(function)
    assert not isinstance(failed.value, ConflictError)
    assert calls == [1]


def test_values_are_checked_where_they_are_written(client: Any) -> None:
    with pytest.raises(InvalidTransactionError):
        client.run(lambda view: view.put("a", None))
    with pytest.raises(InvalidJsonError):
        client.run(lambda view: view.put("a", float("inf")))


def test_a_view_ends_with_its_function(client: Any) -> None:
    leaked: list[Any] = []
    client.run(leaked.append)
    with pytest.raises(ClosedError):
        leaked[0].put("a", 1)
    with pytest.raises(ClosedError):
        leaked[0].get("a")


def test_a_snapshot_that_is_gone_begins_anew(connect: Connect, host: MemoryHost) -> None:
    other = connect()
    other.put("a", 1)
    calls: list[int] = []

    def function(view: Any) -> Any:
        view.get("a")
        if not calls:
            calls.append(1)
            other.put("b", 2)
            host.database.model.gone = 2
            try:
                view.get("b")
            except SnapshotGoneError:
                return "torn"
        return view.get("b")

    assert connect(options=patient()).run(function) == 2


def test_an_unknown_outcome_of_a_function(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=Options(timeout_s=0.01, consistency="snapshot"))
    host.database.executing = False
    with pytest.raises(OutcomeUnknownError) as unknown:
        client.run(increment)
    host.resume()
    assert unknown.value.send_again().seq == 1
    assert client.get("n") == 1


def test_reads_at_the_same_time_show_one_snapshot(host: MemoryHost) -> None:
    async def scenario() -> list[Any]:
        client = host.connect_async()
        await client.atomic().put("a", 1).put("b", 1).commit()

        async def function(view: AsyncView) -> list[Any]:
            first, _, second = await asyncio.gather(
                view.get("a"), client.atomic().put("a", 2).put("b", 2).commit(), view.get("b")
            )
            return [first, second]

        return await client.run(function)

    found = asyncio.run(scenario())
    assert found in ([1, 1], [2, 2])
