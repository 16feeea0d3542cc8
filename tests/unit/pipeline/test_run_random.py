"""A query whose reads are changed loses none of its sources, whenever that happens."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from streamydb.pipeline.run import RunningQuery
from tests.support.seeds import seeds


class Limit:
    """A limit of Spark's, of a kind; ``records``: None where all that there is is read."""

    def __init__(self, records: int | None) -> None:
        self.records = records

    def getClass(self) -> str:  # noqa: N802 - Java's name
        return "ReadAllAvailable" if self.records is None else "ReadMaxRows"


class Limits(dict[str, Limit]):
    """A map of Scala's: it is never changed."""

    def keysIterator(self) -> Any:  # noqa: N802 - Scala's name
        left = [*self]
        return SimpleNamespace(hasNext=lambda: bool(left), next=left.pop)

    def apply(self, source: str) -> Limit:
        return self[source]

    def updated(self, source: str, limit: Limit) -> Limits:
        return Limits({**self, source: limit})


class Engine:
    """A query of Spark's that plans at some moment: only then it has its sources."""

    def __init__(self, planned: Limits) -> None:
        self.planned, self.limits = planned, Limits()
        self.plans_while_told = False

    def uniqueSources(self) -> Limits:  # noqa: N802 - Spark's name
        limits = self.limits
        if self.plans_while_told:
            self.limits, self.plans_while_told = self.planned, False
        return limits


def set_limits(engine: Engine, limits: Limits) -> None:
    engine.limits = limits


setattr(Engine, "uniqueSources_$eq", set_limits)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 15)))
def test_only_limits_of_rows_change_and_no_source_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    package = SimpleNamespace(ReadLimit=SimpleNamespace(maxRows=Limit))
    for name in ("streaming", "read", "connector", "sql", "spark", "apache", "org"):
        package = SimpleNamespace(**{name: package})
    monkeypatch.setattr(SparkContext, "_jvm", package)
    first = {f"source {n}": dice.choice([None, 200_000]) for n in range(dice.randint(1, 4))}
    engine = Engine(Limits({name: Limit(records) for name, records in first.items()}))
    streaming: Any = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: engine))
    query, wanted = RunningQuery(streaming), dict[str, int | None]()
    for _ in range(10):
        if not wanted and dice.random() < 0.4:  # Spark plans now, or while we change the limits
            engine.plans_while_told = dice.random() < 0.5
            engine.limits = engine.limits if engine.plans_while_told else engine.planned
            wanted = dict(first)
        records, told = dice.randint(1, 300_000), bool(engine.limits)
        query.read_at_most(records)
        if told:
            wanted = {name: None if had is None else records for name, had in wanted.items()}
        assert {name: each.records for name, each in engine.limits.items()} == wanted
