"""Projections are interpreted in small micro-batches and compiled in large ones."""

from __future__ import annotations

import logging

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.adaptive import COMPILED, FACTORY_MODE, INTERPRETED, AdaptiveSettings


def test_the_last_batch_decides_and_each_change_is_told_once() -> None:
    told: list[tuple[str, str]] = []
    adaptive = AdaptiveSettings()
    adaptive.note(1)  # no query runs
    adaptive.follow(lambda name, value: told.append((name, value)))
    for records in (20, 30, 200_000, 150_000, 0):
        adaptive.note(records)
    modes = [INTERPRETED, COMPILED, INTERPRETED]
    assert told == [(FACTORY_MODE, mode) for mode in modes]


def test_another_query_is_told_anew() -> None:
    told: list[tuple[str, str]] = []
    adaptive = AdaptiveSettings()
    for _ in range(2):
        adaptive.follow(lambda name, value: told.append((name, value)))
        adaptive.note(1)
        adaptive.note(2)
    assert told == [(FACTORY_MODE, INTERPRETED)] * 2


def test_a_query_that_cannot_be_told_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[str] = []

    def refuse(_: str, value: str) -> None:
        tried.append(value)
        raise Py4JError("no such method")

    adaptive = AdaptiveSettings()
    adaptive.follow(refuse)
    with caplog.at_level(logging.WARNING):
        adaptive.note(1)
        adaptive.note(200_000)
    assert tried == [INTERPRETED]
    assert "projections stay as they are: no such method" in caplog.text
