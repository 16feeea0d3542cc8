"""A facade's change feed over random topics: whoever comes back gets each later change once."""

from __future__ import annotations

from contextlib import aclosing, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.errors import SnapshotError
from streamydb.facade import FacadeSettings, feed_index, kafka_changes
from streamydb.facade.kafka_changes import ChangeReader, KafkaChanges
from streamydb.facade.ports import ChangeBatch
from streamydb.read_model.progress import ResolvedPoint as Progress
from streamydb.read_model.progress import TopicProgress
from streamydb.testing.in_process import scenario, until
from tests.support.seeds import seeds
from tests.unit.facade.test_facade_kafka_random import SETTINGS, History, followed, newest


class Model:
    """What a read model tells that has read some of the changes.

    Where clocks jump by an hour it has read nothing, and knows no time.
    """

    def __init__(self, history: History) -> None:
        self._history, sane = history, not history.wild
        self._parts = followed(history) if sane else {}
        self._newest = newest(history, self._parts)
        seq = min((part.resolved.seq for part in self._parts.values()), default=0)
        self._latest = Progress(seq, history.times[seq], {0: seq})

    def latest(self) -> Progress:
        return self._latest

    def progress(self) -> TopicProgress:
        return TopicProgress("", self._parts)

    def newest(self) -> int:
        return self._newest

    def snapshot(self, seq: int) -> Any:
        if self._history.wild:
            raise SnapshotError("it is not kept")
        return nullcontext(SimpleNamespace(ts_ms=self._history.times[seq]))


def names_of(batches: list[ChangeBatch]) -> list[tuple[int, int, str]]:
    return [(event.seq, event.number, event.key) for batch in batches for event in batch.changes]


@pytest.mark.parametrize("seed", range(seeds(60, 20)))
@scenario
async def test_who_comes_back_gets_each_later_change_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(seed, monkeypatch)
    dice = history.dice
    monkeypatch.setattr(feed_index, "_APART", dice.choice([1, 2, 5]))
    given: list[dict[str, Any]] = []

    def reader(*args: Any, **named: Any) -> ChangeReader:
        given.append(named)
        return ChangeReader(*args, **named)

    monkeypatch.setattr(kafka_changes, "ChangeReader", reader)
    model: Any = Model(history)
    source, published = KafkaChanges(SETTINGS, FacadeSettings(), model), list[ChangeBatch]()
    begun = await source.start(published.append)

    async def come_back() -> None:
        """Read all after a seq."""
        since, last = dice.randrange(history.oracle.next_seq - 1), history.oracle.next_seq - 1
        found: list[ChangeBatch] = []
        async with aclosing(source.history(since)) as batches:
            while not found or found[-1].resolved < last:
                found.append(await anext(batches))
        assert names_of(found) == [change for change in history.changes if change[0] > since]

    def all_published() -> bool:
        return (published[-1].resolved if published else begun) == history.oracle.next_seq - 1

    for _ in range(4):
        await until(all_published)
        assert names_of(published) == [change for change in history.changes if change[0] > begun]
        await come_back()
        history._plan()
    assert source._publishing is not None
    source._publishing.cancel()  # nobody fills the index any more
    await until(source._publishing.done)
    await come_back()
    follower, *watchers = given
    assert [each["index"] for each in watchers] == [follower["notes"]] * 4 + [None]
    await source.stop()
