"""The heap of Spark's JVM is given back when nothing comes, and left alone otherwise."""

from __future__ import annotations

import random

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.adaptive import BatchSize
from streamydb.pipeline.background import IDLE_LOOKS, WORKERLESS_LOOKS, Heap, IdleHeap
from tests.support.seeds import seeds

LIVES_MB = 100.0


class Jvm:
    """A heap that grows under load, and has its least size after a collection."""

    def __init__(self) -> None:
        self.size_mb = 900.0
        self.collections = 0
        self.endings = 0

    def collect(self) -> None:
        self.collections += 1
        self.size_mb = LIVES_MB

    def end_workers(self) -> None:
        self.endings += 1

    def watched(self) -> IdleHeap:
        return IdleHeap(Heap(lambda: self.size_mb, self.collect, self.end_workers))


def looks(heap: IdleHeap, count: int) -> None:
    for _ in range(count):
        heap.look()


def test_it_is_collected_once_after_some_looks_without_transactions() -> None:
    jvm = Jvm()
    heap = jvm.watched()
    looks(heap, IDLE_LOOKS)
    assert jvm.collections == 0  # it has just begun
    looks(heap, 1)
    assert (jvm.collections, jvm.size_mb) == (1, LIVES_MB)
    jvm.size_mb = 900.0  # whatever it grows by itself: an idle JVM is not collected again and again
    looks(heap, 100)
    assert jvm.collections == 1


def test_load_that_has_not_let_it_grow_is_no_reason() -> None:
    jvm = Jvm()
    heap = jvm.watched()
    looks(heap, IDLE_LOOKS + 1)
    for grown_mb, collections in ((24.0, 1), (24.9, 1), (25.0, 2)):
        jvm.size_mb = LIVES_MB + grown_mb
        heap.note(BatchSize(10, 5, 0))
        looks(heap, IDLE_LOOKS + 1)
        assert jvm.collections == collections


def test_idle_workers_end_once_and_only_when_nothing_has_come_for_longer() -> None:
    jvm = Jvm()
    heap = jvm.watched()
    for ended in (1, 2):
        heap.note(BatchSize(10, 5, 0))
        looks(heap, WORKERLESS_LOOKS)
        assert jvm.endings == ended - 1
        looks(heap, 100)
        assert jvm.endings == ended


def test_a_spark_that_keeps_its_workers_elsewhere_ends_them_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jvm = Jvm()

    def refuse() -> None:
        raise Py4JError("no such field")

    heap = IdleHeap(Heap(lambda: jvm.size_mb, jvm.collect, refuse))
    with caplog.at_level("INFO", "streamydb.pipeline"):
        looks(heap, WORKERLESS_LOOKS + 1)
    assert jvm.collections == 1
    assert "no such field" in caplog.text


def test_feedback_alone_is_no_load() -> None:
    jvm = Jvm()
    heap = jvm.watched()
    for _ in range(IDLE_LOOKS + 1):
        heap.note(BatchSize(10, 0, 0))
        heap.look()
    assert jvm.collections == 1


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_it_is_never_collected_while_transactions_come(seed: int) -> None:
    rng = random.Random(seed)
    jvm = Jvm()
    heap, quiet = jvm.watched(), -1
    for _ in range(500):
        if rng.random() < 0.4:
            heap.note(BatchSize(1, 1, 0))
            quiet, jvm.size_mb = -1, 900.0
        before = jvm.collections
        heap.look()
        quiet += 1
        assert jvm.collections - before == (quiet == IDLE_LOOKS and before != jvm.collections)
        if quiet == IDLE_LOOKS:
            assert jvm.size_mb == LIVES_MB
    assert jvm.collections > 5
