"""The proof after a run: every transaction answered once, no money made or lost.

Everything is read back from Kafka, in columns: each result (which ids, which status) and each
change (the last value of each key, the least value that any key ever had). A kernel takes records
apart as the pipeline writes them: the fields in their order, no blanks, integers of at most 18
digits. It takes nothing that the patterns here do not take, and finds the same; all else, good or
bad, it leaves to them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError
from streamydb.frames import characters as c
from streamydb.frames.addresses import SPARE_BYTES
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.json_tokens import integer
from streamydb.frames.table import Bytes, Ragged, Texts
from streamydb.kafka.changes import KafkaSource
from streamydb.kafka.columns import NO_KEY, RecordColumns
from streamydb.read_model.recognise import behind, counted
from streamydb.records.result import Status

__all__ = ["Ledger", "Verdicts", "ledger_of", "read_changes", "read_results", "verdicts_of"]

Ints = npt.NDArray[np.int64]

_EXAMPLES: Final = 5
_POLL_S: Final = 0.1
_STALL_S_MAX: Final = 60.0

_OTHER, _READ, _ODD = range(3)
"""The forms of a record: passed over; taken apart by a kernel; left to a pattern."""

_NUMBERED_MAX: Final = 100_000_000
"""An account of a smaller number has its row in an array; a key of another form is looked up."""

_STATUSES: Final = get_args(Status)


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
        StreamyError: the topic cannot be read to its end.
    """
    batches = _batches(connection, topic, starts, note)
    return verdicts_of(batches, id_prefix.encode(), expected)


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
    whoever led before may write on for a moment.
    """
    return ledger_of(_batches(connection, topic, starts, note), key_prefix.encode())


def _batches(
    connection: Mapping[str, str], topic: str, starts: Mapping[int, int] | None,
    note: Callable[[int], object],
) -> Iterator[RecordColumns]:  # fmt: skip
    """The records of a topic from these starts to its end as it is now."""
    with closing(KafkaSource(connection, topic)) as source:
        spans = source.describe().spans
        first = {n: max(span.low, (starts or {}).get(n, 0)) for n, span in spans.items()}
        ends = np.array([spans[n].high for n in range(len(spans))])
        positions = np.array([first[n] for n in range(len(spans))])
        source.assign(first)
        read, last_s = 0, time.monotonic()
        while (positions < ends).any():
            records, reached = source.fetch(_POLL_S)
            for number, end in reached.items():
                positions[number] = max(positions[number], end)
            if len(records):
                np.maximum.at(positions, records.partitions, records.offsets + 1)
                before_end = records.offsets < ends[records.partitions]
                if not before_end.all():
                    records = records.where(before_end)
                yield records
                read += len(records)
                note(read)
            if len(records) or reached:
                last_s = time.monotonic()
            elif time.monotonic() - last_s > _STALL_S_MAX:
                raise BenchError(f"{topic}: nothing came for {_STALL_S_MAX:.0f} s before its end")


@leaf
def _found(data: Bytes, at: int, end: int, pieces: Texts, i: int) -> int:
    """The position behind the first occurrence of a piece in the line, or -1."""
    first = pieces.data[pieces.offsets[i]]
    while 0 <= at < end and data[at] != c.LINE_FEED:
        if data[at] == first:
            stop = behind(data, at, end, pieces, i)
            if stop >= 0:
                return stop
        at += 1
    return -1


# The pieces of a result, by number; the statuses stand behind.
_ID, _REST, _STATUS, _FIRST_STATUS = range(4)


@kernel
def _results(values: Texts, pieces: Texts, statuses: int) -> Ints:
    """Of each record its form, the number of the transaction and that of the status."""
    n = len(values.offsets) - 1
    out = np.zeros((n, 3), np.int64)
    data = values.data
    for i in range(n):
        end = values.offsets[i + 1]
        at = behind(data, values.offsets[i], end, pieces, _ID)
        if at < 0:
            continue
        out[i, 0] = _ODD
        at, number = integer(data, at, end)
        at = _found(data, behind(data, at, end, pieces, _REST), end, pieces, _STATUS)
        for status in range(statuses):
            if number >= 0 and behind(data, at, end, pieces, _FIRST_STATUS + status) >= 0:
                out[i, 0], out[i, 1], out[i, 2] = _READ, number, status
    return out


def verdicts_of(batches: Iterable[RecordColumns], prefix: bytes, expected: int) -> Verdicts:
    """Count the results of the transactions `<prefix>0` .. `<prefix><expected - 1>`."""
    pattern = re.compile(rb'\{"id":"' + re.escape(prefix) + rb'(\d+)",.*?"status":"(\w+)"')
    texts = [b'{"id":"' + prefix, b'",', b'"status":"', *(b'%s"' % s.encode() for s in _STATUSES)]
    pieces = Ragged.of([*texts, bytes(SPARE_BYTES)]).texts()
    seen = np.zeros(expected, np.bool_)
    statuses: Counter[str] = Counter()
    for records in batches:
        form, numbers, status = _results(records.values.texts(), pieces, len(_STATUSES)).T
        plain = form == _READ
        seen[numbers[plain & (numbers < expected)]] = True
        counts = np.bincount(status[plain], minlength=len(_STATUSES)).tolist()
        statuses.update(dict(zip(_STATUSES, counts, strict=True)))
        for row in np.flatnonzero(form == _ODD).tolist():
            if (odd := pattern.match(records.values[row])) is not None:
                seen[int(odd[1]) : int(odd[1]) + 1] = True
                statuses[odd[2].decode()] += 1
    answered = int(seen.sum())
    named = {status: count for status, count in sorted(statuses.items()) if count}
    return Verdicts(expected, answered, statuses.total() - answered, named)


_CHANGE: Final = re.compile(
    rb'\{"op":"[cu]","before":(?:null|-?\d+),"after":(-?\d+),.*?"seq":(\d+)\},"transaction":'
)

# The pieces of a change, by number.
_KEY, _OP, _BEFORE, _NULL, _AFTER, _SEQ, _TRANSACTION = range(7)
_PIECES: Final = (
    b'{"op":"', b'","before":', b"null", b',"after":', b'"seq":', b'},"transaction":',
)  # fmt: skip


@leaf
def _change(data: Bytes, at: int, end: int, pieces: Texts) -> tuple[int, int]:
    """The balance and the seq of a change; a negative seq: it is not as the pipeline writes it."""
    at = behind(data, at, end, pieces, _OP)
    if at < 0 or at >= end or (data[at] != c.LOWER_C and data[at] != c.LOWER_U):
        return 0, -1
    at = behind(data, at + 1, end, pieces, _BEFORE)
    created = behind(data, at, end, pieces, _NULL)
    if created >= 0:
        at = created
    elif at >= 0:
        at, _ = integer(data, at, end)
    at, balance = counted(data, at, end, pieces, _AFTER)
    if at < 0 or at >= end or data[at] != c.COMMA:
        return 0, -1
    at = _found(data, at, end, pieces, _SEQ)
    at, seq = integer(data, at, end) if at >= 0 else (-1, -1)
    return balance, seq if behind(data, at, end, pieces, _TRANSACTION) >= 0 else -1


@kernel
def _changes(keys: Texts, values: Texts, absent: Bytes, pieces: Texts) -> Ints:
    """Of each record its form, the number of the account (-1: none), the balance and the seq."""
    n = len(absent)
    out = np.zeros((n, 4), np.int64)
    for i in range(n):
        end = keys.offsets[i + 1]
        at = behind(keys.data, keys.offsets[i], end, pieces, _KEY)
        if at < 0 or absent[i] & NO_KEY:
            continue
        stop, number = integer(keys.data, at, end)
        balance, seq = _change(values.data, values.offsets[i], values.offsets[i + 1], pieces)
        out[i, 0] = _READ if seq >= 0 else _ODD
        out[i, 1] = number if stop == end and 0 <= number < _NUMBERED_MAX else -1
        out[i, 2], out[i, 3] = balance, seq
    return out


@leaf
def _keep(changes: Ints, balances: Ints) -> None:
    """Keep the balance of each change that no change with a higher seq has come before."""
    for i in range(len(changes)):
        number, seq = changes[i, 1], changes[i, 3]
        if balances[number, 1] <= seq + 1:
            balances[number, 0], balances[number, 1] = changes[i, 2], seq + 1


@leaf
def _totals(balances: Ints) -> tuple[int, int, int]:
    """How many accounts there are; the sums of the upper and of the lower halves of balances."""
    accounts, upper, lower = 0, 0, 0
    for row in range(len(balances)):
        accounts += balances[row, 1] > 0
        upper += balances[row, 0] >> 32
        lower += balances[row, 0] & 0xFFFFFFFF
    return accounts, upper, lower


class _Balances:
    """The last balance of each account."""

    def __init__(self) -> None:
        # Of an account with a number its balance, and its seq and one; zeros if there is none.
        self._numbered: Ints = np.zeros((1 << 16, 2), np.int64)
        self._named: dict[bytes, tuple[int, int]] = {}

    def add(self, changes: Ints, keys: Ragged) -> None:
        """Take changes as `_changes` makes them, of these keys; each has been read."""
        numbers = changes[:, 1]
        count = int(numbers.max(initial=-1)) + 1
        if count > len(self._numbered):
            room = max(count, 2 * len(self._numbered)) - len(self._numbered)
            self._numbered = np.concatenate([self._numbered, np.zeros((room, 2), np.int64)])
        numbered = numbers >= 0
        _keep(changes if numbered.all() else changes[numbered], self._numbered)
        for row in np.flatnonzero(~numbered).tolist():
            key, (balance, seq) = keys[row], changes[row, 2:].tolist()
            if self._named.get(key, (seq, 0))[0] <= seq:
                self._named[key] = seq, balance

    def totals(self) -> tuple[int, int]:
        """How many accounts there are, and the sum of their balances, which may be any integer."""
        accounts, upper, lower = _totals(self._numbered)
        total = (upper << 32) + lower + sum(balance for _, balance in self._named.values())
        return accounts + len(self._named), total


def ledger_of(batches: Iterable[RecordColumns], prefix: bytes) -> Ledger:
    """Add up the balances after all changes.

    ``prefix``: of the keys of accounts; others are passed over.
    """
    pieces = Ragged.of([prefix, *_PIECES, bytes(SPARE_BYTES)]).texts()
    ledger, balances = Ledger(), _Balances()
    for records in batches:
        keys, values = records.keys, records.values
        changes = _changes(keys.texts(), values.texts(), records.absent, pieces)
        for row in np.flatnonzero(changes[:, 0] == _ODD).tolist():
            odd = _CHANGE.match(values[row])
            if odd is not None:
                changes[row, 0], changes[row, 2:] = _READ, [int(number) for number in odd.groups()]
            elif len(ledger.unreadable) < _EXAMPLES:
                text = values[row] or b"null"
                ledger.unreadable.append(text[:200].decode(errors="replace"))
        read = changes[:, 0] == _READ
        if not read.all():
            keys, changes = keys.take(np.flatnonzero(read)), changes[read]
        if len(changes):
            least = int(changes[:, 2].min())
            ledger.least = least if ledger.least is None else min(ledger.least, least)
            balances.add(changes, keys)
        ledger.changes += len(changes)
    ledger.accounts, ledger.total = balances.totals()
    return ledger
