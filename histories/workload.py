"""The operations of clients: a seeded choice over registers, short lists, and sets (pure).

A set is a range of keys: each is made once, with a list of one element, and removed once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from histories.records import (
    AppendOperation,
    Consistency,
    Get,
    Operation,
    RangeSeen,
    ReadOperation,
    Request,
    ScanOperation,
    Seen,
    WriteOperation,
)

__all__ = ["LISTS", "REGISTERS", "SETS", "HistoryClient", "Shape"]

REGISTERS: Final = "r/"
"""Prefix of the keys that hold one value each."""

LISTS: Final = "l/"
"""Prefix of the keys that hold lists: `l/<generation>/<number>`."""

SETS: Final = "s/"
"""Prefix of the keys of sets: `s/<generation>/<number>/<key>`."""


class Shape(msgspec.Struct, frozen=True):
    """The shape of a workload.

    Attributes:
        registers: keys with one value, for the whole run.
        lists: keys with lists at a time.
        sets: ranges at a time.
        room: keys that a set may have.
        generation: after so many operations of each client, new lists and sets are taken, so that
            they stay short.
        session: operations of one session.
        keys_max: keys in one transaction or read.
        page: entries in a page of a scan.
        ending: share of the keys of sets that are made with an end; 0: nothing ends.
        ttl_ms: how long they live at the most; most live far shorter.
        impatient: share of writes that the client cuts off before the answer.
        put_off: share of the other writes that ask for an answer within a second, or for none.
        give_up: share of writes whose client does not ask again when it was not told the verdict.
        leave: share of events after which a watcher connects anew.
        prefix: of all keys, so that a database may have several histories.
    """

    registers: int = 6
    lists: int = 8
    sets: int = 2
    room: int = 5
    generation: int = 40
    session: int = 60
    keys_max: int = 4
    page: int = 3
    ending: float = 0.4
    ttl_ms: int = 8000
    impatient: float = 0.04
    put_off: float = 0.06
    give_up: float = 0.15
    leave: float = 0.01
    prefix: str = ""

    @property
    def all_lists(self) -> str:
        """Prefix of the keys with lists."""
        return self.prefix + LISTS

    @property
    def all_sets(self) -> str:
        """Prefix of the keys of sets."""
        return self.prefix + SETS

    @property
    def all_registers(self) -> str:
        """Prefix of the keys with one value."""
        return self.prefix + REGISTERS


_WEIGHTS: Final = {"append": 30, "put": 12, "swap": 12, "delete": 4, "get": 20, "read": 14,
                   "scan": 6, "read-write": 2, "make": 6, "remove": 6, "touch": 4,
                   "range": 20}  # fmt: skip


class HistoryClient:
    """One client's choices; it learns from its answers.

    Attributes:
        number: its number, unique in the history.
        session: its present session.
        newest: the largest seq that the session has seen.
    """

    def __init__(
        self, number: int, shape: Shape, rng: random.Random, new_id: Callable[[], str]
    ) -> None:
        """Choose with `rng`; `new_id` names transactions."""
        self.number = number
        self.session = 0
        self.newest = 0
        self._shape = shape
        self._rng = rng
        self._new_id = new_id
        self._made = 0
        self._values = 0
        self._seen: dict[str, Seen] = {}
        self._sets: dict[str, RangeSeen] = {}

    def next(self) -> Request:
        """Choose the next request."""
        self._made += 1
        if self._made % self._shape.session == 0:
            self.session += 1
            self.newest = 0
        kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        match kind:
            case "append":
                return self._append(self._rng.randint(1, self._shape.keys_max), reads=True)
            case "read-write":
                return self._append(0, reads=True)
            case "put":
                return WriteOperation(self._new_id(), self._register(), self._value())
            case "delete":
                return self._conditional(None)
            case "swap":
                return self._conditional(self._value())
            case "get":
                key = self._rng.choice([self._register(), self._list()])
                return Get(key, *self._consistency())
            case "read":
                count = self._rng.randint(2, self._shape.keys_max)
                return ReadOperation([*self._lists(count), self._register()], *self._consistency())
            case "make":
                return self._make(self._set())
            case "remove":
                return self._remove(self._set())
            case "touch":
                return self._touch(self._set())
            case "range":
                return self._ranged()
            case _:
                prefixes = [self._shape.all_registers, self._list_prefix, self._set(), self._set()]
                prefix = self._rng.choice(prefixes)
                return ScanOperation(prefix, self._shape.page, *self._consistency())

    def learn(self, operation: Operation) -> None:
        """Take note of an answer."""
        answer = operation.told
        if answer is None:
            return
        self.newest = max(self.newest, answer.seq or 0)
        for key, seen in answer.seen.items():
            if key.startswith(self._shape.all_registers) and seen.version is not None:
                self._seen[key] = seen
        request = operation.request
        if answer.seq is not None and answer.committed:
            ranges = dict(answer.ranges)
            if isinstance(request, ScanOperation):
                ranges[request.prefix] = answer.seen
            for prefix, entries in ranges.items():
                self._sets[prefix] = RangeSeen(answer.seq, entries)
        if isinstance(request, WriteOperation) and answer.committed and answer.seq is not None:
            version = 0 if request.value is None else answer.seq
            self._seen[request.key] = Seen(request.value, version)

    @property
    def _list_prefix(self) -> str:
        return f"{self._shape.all_lists}{self._made // self._shape.generation:04}/"

    def _set(self) -> str:
        number = self._rng.randrange(self._shape.sets)
        return f"{self._shape.all_sets}{self._made // self._shape.generation:04}/{number}/"

    def _make(self, prefix: str) -> AppendOperation:
        """Make a key of a set, if it has room."""
        value = self._value()
        made = AppendOperation(self._new_id(), {f"{prefix}{value}": [value]})
        made.most[prefix] = self._shape.room - 1
        if self._rng.random() < self._shape.ending:
            made.ttls[f"{prefix}{value}"] = self._ttl_ms()
        return made

    def _remove(self, prefix: str) -> AppendOperation:
        """Remove a key of a set that this client has seen; else make one."""
        known = self._sets.get(prefix)
        if known is None or not known.seen:
            return self._make(prefix)
        return AppendOperation(self._new_id(), removes=[self._rng.choice(sorted(known.seen))])

    def _touch(self, prefix: str) -> AppendOperation:
        """Give a key of a set that this client has seen another end; else make one."""
        known = self._sets.get(prefix)
        if known is None or not known.seen or not self._shape.ending:
            return self._make(prefix)
        key = self._rng.choice(sorted(known.seen))
        return AppendOperation(self._new_id(), touches=[key], ttls={key: self._ttl_ms()})

    def _ttl_ms(self) -> int:
        """A time to live, as often within 10 ms as from 10 to 100 ms."""
        return int(self._shape.ttl_ms ** self._rng.random())

    def _ranged(self) -> AppendOperation:
        """Change something if a set is as this client has seen it, and scan a set."""
        write = self._rng.choice([self._make, self._remove])
        request = self._append(1, reads=False) if self._rng.random() < 0.3 else write(self._set())
        known = sorted({self._set() for _ in range(3)} & self._sets.keys())
        if known and self._rng.random() < 0.8:
            watched = self._rng.choice(known)
            request.unchanged[watched] = self._sets[watched]
        request.scans = sorted({self._set() for _ in range(self._rng.randint(0, 2))})
        return request

    def _append(self, count: int, *, reads: bool) -> AppendOperation:
        keys = self._lists(count)
        looked_at = self._lists(self._rng.randint(0 if keys else 1, self._shape.keys_max))
        wanted = sorted({*keys, *looked_at}) if reads else []
        return AppendOperation(self._new_id(), {key: [self._value()] for key in keys}, wanted)

    def _conditional(self, value: Any) -> WriteOperation:
        """A write that holds only if the key is as this client saw it last."""
        key = self._register()
        expected = self._seen.get(key)
        if value is None and (expected is None or not expected.version):
            expected = None  # there is no `If-Match` for an absent key
        return WriteOperation(self._new_id(), key, value, expected)

    def _consistency(self) -> tuple[Consistency, int | None]:
        kind = self._rng.choice(("strong", "strong", "session", "snapshot"))
        if kind == "session" and self.newest:
            return "session", self.newest
        return ("snapshot", None) if kind == "snapshot" else ("strong", None)

    def _register(self) -> str:
        return f"{self._shape.all_registers}{self._rng.randrange(self._shape.registers)}"

    def _list(self) -> str:
        return self._lists(1)[0]

    def _lists(self, count: int) -> list[str]:
        numbers = self._rng.sample(range(self._shape.lists), min(count, self._shape.lists))
        return sorted(f"{self._list_prefix}{number:02}" for number in numbers)

    def _value(self) -> str:
        self._values += 1
        return f"{self.number}.{self._values}"
