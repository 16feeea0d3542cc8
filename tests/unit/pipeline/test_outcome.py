"""Waiting for the end of a run: the JVM's end is seen soon, and the JVM is not asked too often; a
query that fails because the JVM ends does not hide that.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from streamydb.pipeline import outcome
from streamydb.pipeline.jvm import JvmEndedError
from streamydb.pipeline.run import RunningQuery


def test_the_jvm_is_asked_less_often_than_its_process_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, looks, asks = [0.0], list[float](), list[float]()

    def ended() -> str | None:
        looks.append(now_s[0])
        return "it was killed" if now_s[0] > 5.9 else None

    def wait(timeout_s: float) -> None:
        now_s[0] += timeout_s

    def keep_up() -> bool:
        asks.append(now_s[0])
        return True

    monkeypatch.setattr(outcome, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    requested = SimpleNamespace(wait=wait, is_set=lambda: False)
    parts: Any = SimpleNamespace(
        status=None, ending=SimpleNamespace(requested=requested), jvm=SimpleNamespace(ended=ended)
    )
    queries: Any = SimpleNamespace(keep_up=keep_up)
    with pytest.raises(JvmEndedError, match="killed"):
        outcome._ended(queries, parts, lambda: None)
    assert len(looks) == 31
    assert 10 <= len(asks) <= 11


def query(context: Any) -> RunningQuery:
    """A query that has failed by an error that tells nothing of the JVM."""
    session = SimpleNamespace(sparkContext=lambda: context)
    engine = SimpleNamespace(sparkSessionForStream=lambda: session)
    conf = SimpleNamespace(get=lambda _, default: default)
    error = SimpleNamespace(getMessage=lambda: "dagScheduler() is null", getCause=lambda: None)
    java = SimpleNamespace(
        streamingQuery=lambda: engine,
        sparkSession=lambda: SimpleNamespace(conf=lambda: conf),
        exception=lambda: SimpleNamespace(isDefined=lambda: True, get=lambda: error),
    )
    streaming: Any = SimpleNamespace(_jsq=java)
    return RunningQuery(streaming)


def gone() -> bool:
    raise Py4JNetworkError("nobody answers")


@pytest.mark.parametrize("is_stopped", [lambda: True, gone])
def test_a_query_that_fails_as_the_jvm_ends_tells_of_the_jvm(is_stopped: Any) -> None:
    parts: Any = SimpleNamespace(jvm=SimpleNamespace(ended=lambda _: "Java's heap is used up"))
    with pytest.raises(JvmEndedError, match="heap is used up"):
        outcome._failed(query(SimpleNamespace(isStopped=is_stopped)), parts)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_query_that_fails_while_the_jvm_lives_tells_of_itself(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    asked, told = list[float](), dict[str, Any]()

    def ended(timeout_s: float) -> None:
        asked.append(timeout_s)

    parts: Any = SimpleNamespace(
        jvm=SimpleNamespace(ended=ended),
        config=SimpleNamespace(checkpoint=tmp_path, local=tmp_path),
        status=SimpleNamespace(update=lambda **status: told.update(status)),
    )
    failed = query(SimpleNamespace(isStopped=lambda: is_stopped))
    assert outcome._failed(failed, parts) == 1
    assert told["state"] == "failed"
    assert "dagScheduler() is null" in told["error"]
    assert len(asked) == is_stopped, "it waits for nothing while the context runs"
