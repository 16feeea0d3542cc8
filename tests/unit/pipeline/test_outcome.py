"""Waiting for the end of a run: the JVM's end is seen soon, and the JVM is not asked too often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.pipeline import outcome
from streamydb.pipeline.jvm import JvmEndedError


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
