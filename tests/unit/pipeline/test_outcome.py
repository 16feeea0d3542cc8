"""Waiting for the end of a run: the JVM's end is seen soon, and the JVM is not asked too often; a
query that fails because the JVM ends does not hide that.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from streamydb.pipeline import outcome
from streamydb.pipeline.jvm import JvmEndedError
from streamydb.pipeline.run import RunningQuery, explain, failure_of
from tests.support.seeds import seeds


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


MESSAGES = (
    "dagScheduler() is null", "SparkContext was shut down", "rejected from ThreadPoolExecutor@1f",
    "Job aborted due to stage failure", "",
)  # fmt: skip


def query(dice: random.Random, context: Any) -> RunningQuery:
    """A query that has failed, by errors whose words tell nothing of the JVM."""
    session = SimpleNamespace(sparkContext=lambda: context)
    engine = SimpleNamespace(sparkSessionForStream=lambda: session)
    conf = SimpleNamespace(get=lambda _, default: default)
    error: Any = None
    for words in dice.choices(MESSAGES, k=dice.randint(1, 3)):
        error = SimpleNamespace(
            getMessage=lambda words=words: words, getCause=lambda cause=error: cause
        )
    java = SimpleNamespace(
        streamingQuery=lambda: engine,
        sparkSession=lambda: SimpleNamespace(conf=lambda: conf),
        exception=lambda: SimpleNamespace(isDefined=lambda: True, get=lambda: error),
    )
    streaming: Any = SimpleNamespace(_jsq=java)
    return RunningQuery(streaming)


def gone() -> bool:
    raise Py4JNetworkError("nobody answers")


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 10)))
@pytest.mark.parametrize("is_stopped", [lambda: True, gone])
def test_a_query_that_fails_as_the_jvm_ends_tells_of_the_jvm(is_stopped: Any, seed: int) -> None:
    parts: Any = SimpleNamespace(jvm=SimpleNamespace(ended=lambda _: "Java's heap is used up"))
    failed = query(random.Random(seed), SimpleNamespace(isStopped=is_stopped))
    with pytest.raises(JvmEndedError, match="heap is used up"):
        outcome._failed(failed, parts)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 10)))
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_query_that_fails_while_the_jvm_lives_tells_of_itself(
    tmp_path: Path, seed: int, *, is_stopped: bool
) -> None:
    asked, told = list[float](), dict[str, Any]()

    def ended(timeout_s: float) -> None:
        asked.append(timeout_s)

    parts: Any = SimpleNamespace(
        jvm=SimpleNamespace(ended=ended),
        config=SimpleNamespace(checkpoint=tmp_path, local=tmp_path),
        status=SimpleNamespace(update=lambda **status: told.update(status)),
    )
    failed = query(random.Random(seed), SimpleNamespace(isStopped=lambda: is_stopped))
    assert outcome._failed(failed, parts) == 1
    assert told["state"] == "failed"
    outermost, *_ = messages = failure_of(failed.query)
    assert outermost in told["error"]
    assert told["error"] == explain(messages)
    assert len(asked) == is_stopped, "it waits for nothing while the context runs"
