"""Small micro-batches have other settings of Spark's than large ones."""

from __future__ import annotations

import logging

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.adaptive import (
    COMPILED,
    FACTORY_MODE,
    INTERPRETED,
    SHUFFLE_PARTITIONS,
    AdaptiveSettings,
    BatchSize,
)


def test_the_last_batch_decides_and_each_change_is_told_once() -> None:
    told: list[tuple[str, str]] = []
    adaptive = AdaptiveSettings()
    adaptive.note(BatchSize(1, 1, 0))  # no query runs
    adaptive.follow(lambda name, value: told.append((name, value)), 1)
    for records in (20, 30, 200_000, 150_000, 1):
        adaptive.note(BatchSize(records, records, 100))
    modes = [INTERPRETED, COMPILED, INTERPRETED]
    assert told == [(FACTORY_MODE, mode) for mode in modes]


def test_a_batch_without_transactions_tells_nothing_of_the_load() -> None:
    settings: dict[str, str] = {}
    adaptive = AdaptiveSettings()
    adaptive.follow(settings.__setitem__, 8)
    adaptive.note(BatchSize(1, 0, 0))
    assert FACTORY_MODE not in settings, "a query begins as it was started"
    for records, transactions, mode in (
        (200_000, 200_000, COMPILED),
        (8, 0, COMPILED),
        (9, 1, INTERPRETED),
        (8, 0, INTERPRETED),
        (10_001, 1, COMPILED),
        (10_000, 1, INTERPRETED),
    ):
        adaptive.note(BatchSize(records, transactions, 0))
        assert settings[FACTORY_MODE] == mode, (records, transactions)


def test_little_is_executed_by_one_task_and_much_or_nothing_by_one_for_each_shard() -> None:
    settings: dict[str, str] = {}
    adaptive = AdaptiveSettings()
    adaptive.follow(settings.__setitem__, 8)
    assert settings == {}, "so many tasks a query begins with"
    for records, executing_us, tasks in (
        (20, 900, "1"),
        (4_000, 20_000, "1"),
        (4_001, 20_000, "8"),
        (20, 20_000, "1"),
        (20, 20_001, "8"),
        (200_000, 60_000, "8"),
        (1, 0, "1"),
        (0, 0, "8"),
    ):
        adaptive.note(BatchSize(9_999, records, executing_us))
        assert settings.get(SHUFFLE_PARTITIONS, "8") == tasks, (records, executing_us)


def test_another_query_is_told_anew() -> None:
    told: list[tuple[str, str]] = []
    adaptive = AdaptiveSettings()
    for _ in range(2):
        adaptive.follow(lambda name, value: told.append((name, value)), 2)
        adaptive.note(BatchSize(1, 1, 0))
        adaptive.note(BatchSize(2, 2, 0))
    assert told == [(FACTORY_MODE, INTERPRETED), (SHUFFLE_PARTITIONS, "1")] * 2


def test_what_the_user_has_given_stays() -> None:
    told: list[tuple[str, str]] = []
    adaptive = AdaptiveSettings()
    adaptive.follow(lambda name, value: told.append((name, value)), 2, {FACTORY_MODE: COMPILED})
    adaptive.note(BatchSize(1, 1, 0))
    assert told == [(SHUFFLE_PARTITIONS, "1")]


def test_a_query_that_cannot_be_told_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[str] = []

    def refuse(_: str, value: str) -> None:
        tried.append(value)
        raise Py4JError("no such method")

    adaptive = AdaptiveSettings()
    adaptive.follow(refuse, 2)
    with caplog.at_level(logging.WARNING):
        adaptive.note(BatchSize(1, 1, 0))
        adaptive.note(BatchSize(200_000, 200_000, 0))
    assert tried == [INTERPRETED]
    assert "settings stay as they are: no such method" in caplog.text
