"""`streamydb watch`: which records its options choose."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from streamydb.cli.common import Failure
from streamydb.cli.watch import Chosen, WatchTarget, _chosen
from streamydb.facade.feed import change_filter
from streamydb.records.ranges import ALL_KEYS, ScanRange
from tests.support.strange import STRANGE

CHANGES = [
    ("a", 1, None, 10), ("b", 2, None, 5), ("a", 3, 10, 20), ("b", 4, 5, None),
]  # fmt: skip
RECORDS: list[tuple[bytes | None, bytes | None]] = []
for key, seq, before, after in CHANGES:
    record = {
        "op": "c", "before": before, "after": after, "ts_ms": 1,
        "source": {"connector": "streamydb", "db": "d", "partition": 0, "offset": 0, "seq": seq},
        "transaction": {"id": "t", "total_order": 1, "data_collection_order": 1},
    }  # fmt: skip
    RECORDS.append((key.encode(), msgspec.json.encode(record)))
    RECORDS += [(key.encode(), None)] if after is None else []
RECORDS.append((None, b'{"resolved":4,"ts_ms":1,"offsets":{"0":4}}'))


class Message:
    """A record of Kafka, as far as it is looked at."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0


def shown(chosen: Chosen, *, resolved: bool = False) -> list[int]:
    messages: list[Any] = [Message(key, value) for key, value in RECORDS]
    return [n for n, each in enumerate(messages, 1) if chosen.takes(each, resolved=resolved)]


Asked = tuple[str, str | None, str | None, str | None, str | None]


def chosen_of(feed: WatchTarget, asked: Asked, since: int | None) -> Chosen:
    prefix, start, end, *checks = asked
    return _chosen(feed, ScanRange(prefix, start, end), (checks[0], checks[1]), since)


@pytest.mark.parametrize(
    ("asked", "since", "found"),
    [
        (("", None, None, None, None), None, [1, 2, 3, 4, 5]),
        (("a", None, None, None, None), None, [1, 3]),
        (("", "b", None, None, None), None, [2, 4, 5]),
        (("", None, "b", None, None), 1, [3]),
        (("", None, None, '{"ge": 10}', None), None, [1, 3]),
        (("", None, None, '{"exists": false}', None), None, [4]),
        (("", None, None, '{"version": 3}', None), None, [3]),
        (("", None, None, None, '{"eq": 5}'), None, [4]),
        (("", None, None, None, None), 3, [4, 5]),
        (("", None, None, None, None), 4, []),
    ],
)
def test_options_choose_changes(asked: Asked, since: int | None, found: list[int]) -> None:
    assert shown(chosen_of(WatchTarget.changes, asked, since)) == found


def test_resolved_records_are_shown_when_asked_for() -> None:
    everything: Asked = ("", None, None, None, None)
    assert shown(chosen_of(WatchTarget.changes, everything, None), resolved=True) == [*range(1, 7)]


def test_the_result_of_a_record_without_an_id_is_shown() -> None:
    refused: Any = Message(None, b'{"id":null,"seq":7,"status":"rejected"}')
    for prefix, found in (("", True), ("a", False)):
        chosen = chosen_of(WatchTarget.results, (prefix, None, None, None, None), None)
        assert chosen.takes(refused, resolved=False) is found


@pytest.mark.parametrize(
    ("feed", "asked", "since"),
    [
        (WatchTarget.results, ("", None, None, '{"ge": 1}', None), None),
        (WatchTarget.streams, ("", None, None, None, None), 3),
        (WatchTarget.changes, ("", None, None, "ge", None), None),
        (WatchTarget.changes, ("", None, None, None, '{"version": 1}'), None),
    ],
)
def test_what_makes_no_sense_is_an_error_of_usage(
    feed: WatchTarget, asked: Asked, since: int | None
) -> None:
    with pytest.raises(Failure) as caught:
        chosen_of(feed, asked, since)
    assert caught.value.code == 2


def test_what_something_else_has_written_has_no_seq_and_no_value() -> None:
    for value in STRANGE[1:]:
        message: Any = Message(b"a", value)
        assert Chosen(change_filter(ALL_KEYS, None, None), None).takes(message, resolved=False)
        assert not Chosen(change_filter(ALL_KEYS, None, None), 0).takes(message, resolved=True)
        valued = change_filter(ALL_KEYS, None, '{"exists": false}')
        assert not Chosen(valued, None).takes(message, resolved=True)
