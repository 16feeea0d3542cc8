"""The proof after a run: every transaction answered once, no money made or lost.

Everything is read back from Kafka: each result (which ids, which status) and each change (the last
value of each key, the least value that any key ever had).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from typing import Any, Final

import numpy as np

from streamydb.reading import TopicReader

__all__ = ["Ledger", "Verdicts", "read_changes", "read_results"]

_CHANGE: Final = re.compile(
    rb'^\{"op":"[cu]","before":(?:null|-?\d+),"after":(-?\d+),', re.MULTILINE
)
_EXAMPLES: Final = 5
_LONG: Final = 5_000_000


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
    pattern = re.compile(
        rb'^\{"id":"' + re.escape(id_prefix.encode()) + rb'(\d+)",.*?"status":"(\w+)"', re.MULTILINE
    )
    seen = np.zeros(expected, np.bool_)
    statuses: Counter[bytes] = Counter()
    read = results = 0
    for values in _batches(connection, topic, starts):
        found = pattern.findall(b"\n".join(value for _, value in values if value is not None))
        read += len(values)
        results += len(found)
        numbers = np.array([int(number) for number, _ in found], np.int64)
        seen[numbers[numbers < expected]] = True
        statuses.update(status for _, status in found)
        note(read)
    answered = int(seen.sum())
    named = {status.decode(): count for status, count in sorted(statuses.items())}
    return Verdicts(expected, answered, results - answered, named)


def read_changes(
    connection: Mapping[str, str],
    topic: str,
    *,
    key_prefix: str = "acct/",
    starts: Mapping[int, int] | None = None,
    note: Callable[[int], object] = lambda _: None,
) -> Ledger:
    """Add up the last balance of every account; arguments and errors as `read_results`.

    The last change of a key in its partition is its value: a batch that was done twice after a
    crash is written again from its beginning to its end. Long topics are read by a process for
    each partition.
    """
    with TopicReader(connection, topic) as reader:
        spans = reader.spans()
    begin = {n: (starts or {}).get(n, span.low) for n, span in spans.items()}
    length = sum(span.high - begin[n] for n, span in spans.items())
    parts = [{n: at} for n, at in begin.items()] if length > _LONG else [begin]
    add_up = partial(_add_up, dict(connection), topic, key_prefix.encode())
    whole = Ledger()
    with ExitStack() as stack:
        run: Callable[..., Iterator[Ledger]] = map
        if len(parts) > 1:
            spawn = get_context("spawn")
            pool = ProcessPoolExecutor(min(len(parts), cpu_count() or 1), spawn)
            run = stack.enter_context(pool).map
        for part in run(add_up, parts):
            whole = _sum(whole, part)
            note(whole.changes)
    return whole


def _sum(left: Ledger, right: Ledger) -> Ledger:
    """The ledger of two ledgers of different accounts."""
    least = [ledger.least for ledger in (left, right) if ledger.least is not None]
    return Ledger(
        left.changes + right.changes, left.accounts + right.accounts, left.total + right.total,
        min(least, default=None), (left.unreadable + right.unreadable)[:_EXAMPLES],
    )


def _add_up(
    connection: dict[str, str], topic: str, prefix: bytes, starts: dict[int, int]
) -> Ledger:
    """Read some partitions of the changes from their starts to their ends."""
    last: dict[bytes, bytes] = {}
    ledger = Ledger()
    for records in _batches(connection, topic, starts):
        ours = [(k, v) for k, v in records if k is not None and k.startswith(prefix)]
        values = [value or b"null" for _, value in ours]
        found = _CHANGE.findall(b"\n".join(values))
        if len(found) != len(ours):
            odd = [text for text in values if _CHANGE.match(text) is None]
            ledger.unreadable += [t[:200].decode(errors="replace") for t in odd[:_EXAMPLES]]
            continue
        if found:
            least = int(np.array(found).astype(np.int64).min())
            ledger.least = least if ledger.least is None else min(ledger.least, least)
        last.update(zip((key for key, _ in ours), found, strict=True))
        ledger.changes += len(ours)
    ledger.accounts = len(last)
    ledger.total = sum(int(balance) for balance in last.values())
    ledger.unreadable = ledger.unreadable[:_EXAMPLES]
    return ledger


def _batches(
    connection: Mapping[str, str], topic: str, starts: Mapping[int, int] | None
) -> Any:
    """Keys and values of a topic, batch by batch, up to its end as it is now."""
    with TopicReader(connection, topic) as reader:
        spans = reader.spans()
        if starts is None:
            starts = {n: span.low for n, span in spans.items()}
        begin = {n: at for n, at in starts.items() if n in spans}
        ends = {n: spans[n].high for n in begin}
        reader.assign(begin)
        for messages in reader.until(ends):
            yield [(message.key(), message.value()) for message in messages]
