"""A snapshot that is interrupted ends by itself, so that it can remove what it has written."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from streamydb.spark import snapshot


class Interrupted(Future[Any]):
    """Ctrl-C comes while somebody waits for it."""

    def result(self, *_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt


def test_its_jobs_are_cancelled_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_AGAIN_S", 0.001)
    writing, cancelled = Interrupted(), threading.Semaphore(0)

    def work() -> None:
        for _ in range(3):  # one job after the other
            cancelled.acquire()
        writing.set_exception(RuntimeError("cancelled"))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)
        with pytest.raises(KeyboardInterrupt):
            snapshot._ended(writing, cancelled.release)
    assert isinstance(writing.exception(), RuntimeError)


def test_what_was_written_is_returned_and_nothing_cancelled() -> None:
    writing: Future[Any] = Future()
    writing.set_result("written")
    found: Any = snapshot._ended(writing, pytest.fail)
    assert found == "written"
