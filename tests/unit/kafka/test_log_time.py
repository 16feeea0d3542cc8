"""A log that is ahead of this machine's clock: what is said of it, and where."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streamydb.errors import StreamyError
from streamydb.kafka.clock import AHEAD_MS_MAX, LogTime
from streamydb.pipeline.background import LogSampler
from streamydb.pipeline.markers import MarkerLoop
from streamydb.settings import Settings

CLOCK_MS = 1_700_000_000_000
TARGET: Any = None

doctor, status = (importlib.import_module(f"streamydb.cli.{name}") for name in ("doctor", "status"))


@pytest.mark.parametrize(
    ("newest_ms", "warned"),
    [
        (0, False), (CLOCK_MS - 7_200_000, False), (CLOCK_MS + AHEAD_MS_MAX, False),
        (CLOCK_MS + AHEAD_MS_MAX + 1, True), (CLOCK_MS + 7_200_000, True), (1 << 62, True),
    ],
)  # fmt: skip
def test_a_log_that_is_ahead_is_warned_of(newest_ms: int, *, warned: bool) -> None:
    warning = LogTime(newest_ms, CLOCK_MS).warning()
    assert (warning is not None) is warned
    if newest_ms == CLOCK_MS + 7_200_000:
        assert warning is not None
        assert "2 h 0 min 0 s ahead of this machine's clock" in warning
        assert warning.endswith("stand still until 2023-11-15T00:13:20.000Z")


def test_doctor_and_status_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    warning = LogTime(CLOCK_MS + 7_200_000, CLOCK_MS).warning()
    monkeypatch.setattr(doctor, "commit_warning", lambda _: warning)
    found = doctor._clock(TARGET)
    assert (found.level, found.what) == ("warn", warning)
    assert "ClockSkew" in found.fix
    assert status._time(TARGET) == warning
    monkeypatch.setattr(doctor, "commit_warning", lambda _: None)
    assert doctor._clock(TARGET).level == "ok"
    assert status._time(TARGET) is None


def test_status_goes_on_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> str:
        raise StreamyError("Kafka does not answer")

    monkeypatch.setattr(doctor, "commit_warning", fail)
    assert status._time(TARGET) is None


def test_the_pipeline_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    sampler = LogSampler(settings, CollectorRegistry(), MarkerLoop(settings))
    with caplog.at_level(logging.WARNING, "streamydb.pipeline"):
        for warning in (None, "ahead", "ahead", None, "ahead again"):
            sampler._complain(warning)
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "ahead", "ahead again",
    ]  # fmt: skip
