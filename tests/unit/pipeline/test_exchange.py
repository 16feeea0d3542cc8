"""The exchange: each task gets what the others have given to it, as soon as they have."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from streamydb.pipeline import spool
from streamydb.pipeline.spool import (
    NO_SPOOL,
    BlockExchange,
    Spool,
    SpoolError,
    TaskBlocks,
    task_number,
)
from streamydb.testing.database import wait_for

KIND = "grants"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    monkeypatch.setattr(spool, "_batch", lambda: 7)
    return Spool(tmp_path / "spool" / "life", 100)


class Waiting:
    """Tasks that take, each in a thread."""

    def __init__(self, files: Spool) -> None:
        self._files = files
        self._threads = ThreadPoolExecutor()

    def take(self, givers: list[int], number: int) -> Future[list[bytes]]:
        exchange = BlockExchange(self._files)
        return self._threads.submit(lambda: [
            block for giver in givers for block in exchange.take(KIND, giver).to(number)
        ])  # fmt: skip


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long tasks that wait have slept, each time."""
    slept: list[float] = []
    look = Event().wait  # never set: it ends when the time is over

    def noted(seconds: float) -> None:
        slept.append(seconds)
        look(seconds)

    monkeypatch.setattr("streamydb.pipeline.spool.sleep", noted)
    return slept


def test_a_task_waits_for_what_others_give(files: Spool, waits: list[float]) -> None:
    BlockExchange(files).give(KIND, 1, TaskBlocks([(0, b"a"), (2, b"not for it"), (0, b"b")]))
    got = Waiting(files).take([1, 2], 0)  # it waits for 2 alone
    wait_for(lambda: len(waits) > 3, "some looks", 20)
    BlockExchange(files).give("outputs", 2, TaskBlocks([(0, b"of another kind")]))
    before = len(waits)
    wait_for(lambda: len(waits) > before + 3, "more looks", 20)
    assert not got.done()
    BlockExchange(files).give(KIND, 2, TaskBlocks([(0, b"c")]))
    assert got.result(20) == [b"a", b"b", b"c"]
    assert waits[:4] == sorted({*waits[:4]}), "looks become fewer"
    assert max(waits) <= 0.002


@pytest.mark.parametrize("log", ["takes it", "is full"])
def test_a_task_that_waits_for_long_says_for_what_and_ever_more_seldom(
    log: str, files: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    waited: list[float] = []

    def write(text: str) -> None:
        said.append(text)
        if log == "is full":
            raise OSError(28, "No space left on device")

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if sum(waited) > 100:
            BlockExchange(files).give(KIND, 1, TaskBlocks([(0, b"a")]))
            waited.clear()

    monkeypatch.setattr("streamydb.pipeline.spool.sleep", wait)
    monkeypatch.setattr("streamydb.pipeline.spool._LOOK_S", (0.2, 0.3))
    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=write, flush=lambda: None))
    assert BlockExchange(files).take(KIND, 1).to(0) == [b"a"]
    assert len(said) == 4, "after 10, 20, 40 and 80 seconds"
    assert "task 0 still waits for grants-1 of another task" in said[0]


def test_all_tasks_give_and_take_at_the_same_time(files: Spool) -> None:
    """Whoever is first, and whoever gives twice: each gets all that is for it, once."""
    rng = random.Random(5)
    for tasks in (2, 5, 9):
        given: dict[int, list[tuple[int, bytes]]] = {
            n: [(rng.randrange(tasks), os.urandom(rng.randrange(300))) for _ in range(20)]
            for n in range(tasks)
        }
        waiting = Waiting(files)
        got = {
            n: waiting.take([o for o in given if o != n], n) for n in rng.sample([*given], tasks)
        }
        for n in rng.choices([*given], k=tasks) + rng.sample([*given], tasks):
            BlockExchange(files).give(KIND, n, TaskBlocks(given[n]))
        for n, future in got.items():
            assert future.result(20) == [
                block for o in sorted(given) if o != n for dest, block in given[o] if dest == n
            ]
        shutil.rmtree(files.of_batch())


@pytest.mark.parametrize("end", ["the folder is gone", "Spark has gone"])
def test_nobody_waits_for_a_query_that_has_ended(
    end: str, files: Spool, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    got = Waiting(files).take([1], 0)
    wait_for(lambda: len(waits) > 0, "a look", 20)
    if end == "the folder is gone":
        shutil.rmtree(str(files.folder))  # by the next start of the query
    else:
        monkeypatch.setattr("os.getppid", lambda: 1)
    with pytest.raises(SpoolError, match="has ended"):
        got.result(20)


def denied(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(
    ("method", "use"),
    [
        ("open", lambda exchange: exchange.give(KIND, 1, TaskBlocks([(0, b"a")]))),
        ("replace", lambda exchange: exchange.give(KIND, 1, TaskBlocks([(0, b"a")]))),
        ("read_bytes", lambda exchange: exchange.take(KIND, 1)),
    ],
)
def test_a_file_that_fails_is_a_clear_error(
    method: str,
    use: Callable[[BlockExchange], object],
    files: Spool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = BlockExchange(files)
    exchange.give(KIND, 1, TaskBlocks([(0, b"b")]))
    with monkeypatch.context() as patched:
        patched.setattr(Path, method, denied)
        with pytest.raises(SpoolError, match="Permission denied"):
            use(exchange)
    assert exchange.take(KIND, 1) == TaskBlocks([(0, b"b")])


def test_a_half_written_file_is_nobodys(files: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that fails while it writes has given nothing."""
    with monkeypatch.context() as patched, suppress(SpoolError):
        patched.setattr(Path, "replace", denied)
        BlockExchange(files).give(KIND, 1, TaskBlocks([(0, b"a")]))
    assert not [*files.of_batch().iterdir()]
    got = Waiting(files).take([1], 0)
    BlockExchange(files).give(KIND, 1, TaskBlocks([(0, b"b")]))
    assert got.result(20) == [b"b"]


def test_outside_of_a_query_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="no task"):
        BlockExchange(NO_SPOOL)
    with pytest.raises(SpoolError, match="no task"):
        BlockExchange(Spool(tmp_path))
    assert task_number() == 0


def test_a_folder_that_cannot_be_made(files: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(SpoolError, match="cannot be made"):
        BlockExchange(files)
