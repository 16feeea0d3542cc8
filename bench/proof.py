"""The proof after a run: every transaction answered once, no money made or lost.

Everything is read back from Kafka: each result (which ids, which status) and each change (the last
value of each key, the least value that any key ever had).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing import active_children, get_context
from os import cpu_count
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from streamydb.kafka.reader import TopicReader
from streamydb.local.processes import end_with_parent

__all__ = ["Ledger", "Verdicts", "ledger_of", "read_changes", "read_results", "stretches"]

_Part = TypeVar("_Part")

_CHANGE: Final = re.compile(
    rb'^\{"op":"[cu]","before":(?:null|-?\d+),"after":(-?\d+),.*?"seq":(\d+)\},"transaction":',
    re.MULTILINE,
)
_EXAMPLES: Final = 5
_LONG: Final = 5_000_000
_CUT: Final = 8

Stretches = dict[int, tuple[int, int]]
"""Partition to first offset and one past the last."""


@dataclass(slots=True)
class Verdicts:
    """What the results topic says about the ids `<prefix>0` .. `<prefix><expected - 1>`."""

    expected: int
    answered: int = 0
    """Different transactions with a result."""
    again: int = 0
    """Results beyond one a transaction; a crash of the pipeline may leave some."""
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Transactions without a result."""
        return self.expected - self.answered


@dataclass(slots=True)
class Ledger:
    """What the changes topic says about the balances."""

    changes: int = 0
    accounts: int = 0
    total: int = 0
    least: int | None = None
    """The least balance that any account ever had; None without any change."""
    unreadable: list[str] = field(default_factory=list)
    """Some of the changes that are no change of a balance."""

    def problems(self, accounts: int, total: int) -> list[str]:
        """What is wrong with the balances if there should be `accounts` of them, `total` in all."""
        found = [f"not a change of a balance: {text}" for text in self.unreadable]
        if self.accounts != accounts:
            found.append(f"{self.accounts:,} accounts instead of {accounts:,}")
        if self.total != total:
            found.append(f"the balances add up to {self.total:,} instead of {total:,}")
        if self.least is not None and self.least < 0:
            found.append(f"a balance was {self.least:,} once; none may be below 0")
        return found


def read_results(
    connection: Mapping[str, str],
    topic: str,
    expected: int,
    *,
    id_prefix: str = "t",
    starts: Mapping[int, int] | None = None,
    note: Callable[[int], object] = lambda _: None,
) -> Verdicts:
    """Count the results of the transactions with this prefix.

    Long topics are read by several processes, each its stretch of a partition.

    Args:
        connection: connection settings for confluent-kafka.
        topic: the results topic.
        expected: how many transactions there were.
        id_prefix: how their ids begin.
        starts: where to begin to read each partition; None: at the beginning.
        note: is told how many records have been read.

    Raises:
        ReadingError: Kafka does not answer.
    """
    seen = np.zeros(-(-expected // 8), np.uint8)
    statuses: Counter[str] = Counter()
    count = partial(_count, dict(connection), topic, id_prefix.encode(), expected)
    for part_seen, part_statuses in _each_part(connection, topic, starts, count, cut=_CUT):
        seen |= part_seen
        statuses.update(part_statuses)
        note(statuses.total())
    answered = int(np.unpackbits(seen, count=expected).sum())
    return Verdicts(expected, answered, statuses.total() - answered, dict(sorted(statuses.items())))


def _count(
    connection: dict[str, str], topic: str, prefix: bytes, expected: int, part: Stretches
) -> tuple[npt.NDArray[np.uint8], Counter[str]]:
    """Which transactions have a result there (a bit each), and the statuses of the results."""
    pattern = re.compile(
        rb'^\{"id":"' + re.escape(prefix) + rb'(\d+)",.*?"status":"(\w+)"', re.MULTILINE
    )
    seen = np.zeros(expected, np.bool_)
    statuses: Counter[bytes] = Counter()
    for values in _batches(connection, topic, part):
        found = pattern.findall(b"\n".join(value for _, value in values if value is not None))
        numbers = np.array([int(number) for number, _ in found], np.int64)
        seen[numbers[numbers < expected]] = True
        statuses.update(status for _, status in found)
    named = Counter({status.decode(): count for status, count in statuses.items()})
    return np.packbits(seen), named


def read_changes(
    connection: Mapping[str, str],
    topic: str,
    *,
    key_prefix: str = "acct/",
    starts: Mapping[int, int] | None = None,
    note: Callable[[int], object] = lambda _: None,
) -> Ledger:
    """Add up the last balance of every account; arguments and errors as `read_results`.

    The change of a key with the highest seq is its value. It need not be the last one in the topic:
    whoever led before may write on for a moment. Long topics are read by a process for
    each partition.
    """
    add_up = partial(_add_up, dict(connection), topic, key_prefix.encode())
    whole = Ledger()
    for part in _each_part(connection, topic, starts, add_up):
        whole = _sum(whole, part)
        note(whole.changes)
    return whole


def _each_part(
    connection: Mapping[str, str], topic: str, starts: Mapping[int, int] | None,
    look: Callable[[Stretches], _Part], cut: int = 1,
) -> Iterator[_Part]:  # fmt: skip
    """What `look` says of the topic from these starts to its end as it is now.

    Where there is much to read, processes of their own look at `cut` stretches of each partition.
    """
    with TopicReader(connection, topic) as reader:
        spans = reader.spans()
    whole = {n: ((starts or {}).get(n, span.low), span.high) for n, span in spans.items()}
    if sum(end - start for start, end in whole.values()) <= _LONG:
        yield look(whole)
        return
    parts = [{n: one} for n, span in whole.items() for one in stretches(*span, cut)]
    most = min(len(parts), cpu_count() or 1)
    with ProcessPoolExecutor(most, get_context("spawn"), end_with_parent) as pool:
        try:
            yield from pool.map(look, parts)
        except BaseException:  # an end from outside, too: nobody waits for what they still read
            for child in active_children():
                child.terminate()
            raise


def stretches(start: int, end: int, count: int) -> list[tuple[int, int]]:
    """The offsets from `start` to before `end` in `count` stretches, about equally long."""
    edges = [start + (end - start) * number // count for number in range(count + 1)]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def _sum(left: Ledger, right: Ledger) -> Ledger:
    """The ledger of two ledgers of different accounts."""
    least = [ledger.least for ledger in (left, right) if ledger.least is not None]
    return Ledger(
        left.changes + right.changes,
        left.accounts + right.accounts,
        left.total + right.total,
        min(least, default=None),
        (left.unreadable + right.unreadable)[:_EXAMPLES],
    )


def _add_up(connection: dict[str, str], topic: str, prefix: bytes, part: Stretches) -> Ledger:
    """Read some partitions of the changes."""
    return ledger_of(_batches(connection, topic, part), prefix)


def ledger_of(
    batches: Iterable[Sequence[tuple[bytes | None, bytes | None]]], prefix: bytes
) -> Ledger:
    """Add up the balances after all changes, in batches of keys and values in their order.

    ``prefix``: of the keys of accounts; others are passed over.
    """
    last: dict[bytes, tuple[int, int]] = {}
    ledger = Ledger()
    for records in batches:
        ours = [(k, v) for k, v in records if k is not None and k.startswith(prefix)]
        values = [value or b"null" for _, value in ours]
        found = _CHANGE.findall(b"\n".join(values))
        if len(found) != len(ours):
            odd = [text for text in values if _CHANGE.match(text) is None]
            ledger.unreadable += [t[:200].decode(errors="replace") for t in odd[:_EXAMPLES]]
            continue
        if found:
            numbers = np.array(found).astype(np.int64)
            least = int(numbers[:, 0].min())
            ledger.least = least if ledger.least is None else min(ledger.least, least)
            for (key, _), (balance, seq) in zip(ours, numbers.tolist(), strict=True):
                known = last.get(key)
                if known is None or known[0] <= seq:
                    last[key] = seq, balance
        ledger.changes += len(ours)
    ledger.accounts = len(last)
    ledger.total = sum(balance for _, balance in last.values())
    ledger.unreadable = ledger.unreadable[:_EXAMPLES]
    return ledger


def _batches(connection: Mapping[str, str], topic: str, part: Stretches) -> Any:
    """Keys and values of these stretches of a topic, batch by batch."""
    ends = {n: end for n, (_, end) in part.items()}
    with TopicReader(connection, topic) as reader:
        reader.assign({n: start for n, (start, _) in part.items()})
        for messages in reader.until(ends):
            yield [
                (message.key(), message.value())
                for message in messages
                if (message.offset() or 0) < ends[message.partition() or 0]
            ]
