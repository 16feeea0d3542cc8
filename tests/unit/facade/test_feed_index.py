"""The index of the changes topic, note by note."""

from __future__ import annotations

import pytest

from streamydb.facade import feed_index
from streamydb.facade.feed_index import FeedIndex
from streamydb.read_model.progress import PartitionProgress, ResolvedPoint
from streamydb.records import Resolved


def resolved(seq: int) -> Resolved:
    return Resolved(seq, seq, {"0": seq})


def index_that_begins(at: int) -> FeedIndex:
    """An index of a partition of which a read model has read five records, with seqs up to 9."""
    index = FeedIndex({0: PartitionProgress(5, ResolvedPoint(3))}, 9)
    index.begin({0: at})
    index.note(0, at, resolved(3))
    return index


@pytest.mark.parametrize(
    ("at", "begins"),
    [
        (0, {2: None, 3: 0, 8: 0}),  # nothing lies before
        (5, {3: None, 8: None, 9: 5}),  # the read model has met 9 before
        (6, {3: None, 8: None, 9: None, 1_000: None}),  # nobody has read the sixth record
    ],
)
def test_what_lies_before_the_start_counts(at: int, begins: dict[int, int | None]) -> None:
    """Also if Kafka has deleted it."""
    index = index_that_begins(at)
    assert {since: index.place(0, since) for since in begins} == begins
    assert index.place(1, 9) is None


def test_an_index_of_many_notes_keeps_half_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_index, "_NOTES_MAX", 8)
    monkeypatch.setattr(feed_index, "_APART", 1)
    index = FeedIndex({}, 0)
    index.begin({0: 0})
    for seq in range(100):
        index.note(0, seq, resolved(seq))
    places = [index.place(0, since) for since in range(100)]
    assert len(set(places)) <= 8
    assert places[0] == 0
    late = [since - place for since, place in enumerate(places) if place is not None]
    assert 0 <= min(late) <= max(late) <= 32
