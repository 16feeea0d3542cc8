"""The records that clients write in a simulation: transactions of every kind, and other records."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.constraints import Declarations
from simulator.expiry import Expiry, Leases
from simulator.large_values import LargeValues
from simulator.procedures import Calls
from simulator.ranges import Ranges
from simulator.workflows import FlowCalls

__all__ = ["Deadlines", "Workload"]

_HOSTILE: Final = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'{"id":5}',
    b'{"id":"x","updates":[{"op":"fly","key":"a"}]}',
    b'{"id":"x","updates":[{"op":"put","key":"a","value":NaN}]}',
    b'{"id":"x","updates":[{"op":"put","key":"a","value":99999999999999999999}]}',
    b'{"id":"x","updates":[{"op":"put","key":"a","value":null}]}',
    b'{"id":"x","reads":["\\ud800"]}',
    b'{"id":"x","unknown":1}',
    b'{"id":"x","updates":[{"op":"delete","key":"a"},{"op":"delete","key":"a"}]}',
    b'{"id":"x","call":{"procedure":"p","args":{},"keys":[]}}',
    b'{"id":"x","call":{"procedure":"sim.mark"},"updates":[{"op":"delete","key":"a"}]}',
    b'{"id":"x","call":{"procedure":"sim.mark","keys":["$procedures/sim"]}}',
    b'{"id":"x","updates":[{"op":"delete","key":"$procedures/sim"}]}',
    b'{"id":"x","updates":[{"op":"delete","key":"$constraints"}]}',
    b'{"id":"x","constrain":{"declare":{"name":"x","prefix":"k","max":1}}}',
    b'{"id":"x","constrain":{"drop":"x"},"updates":[{"op":"delete","key":"a"}]}',
    b'{"id":"x","constrain":{}}',
    b'{"id":"x","locks":["k1"]}',
    b'{"id":"x","deadline_ms":0}',
    b'{"id":"x","deadline_ms":1e9}',
    b'{"id":"x","deadline_ms":99999999999999999999}',
    b'{"id":"x","deadline_ms":"1000000000"}',
    b'{"id":"x","deploy":{"module":"sim","hash":"sha256:0","procedures":{}}}',
    b'{"id":"x","reads":["' + b"k" * 500 + b'"]}',
    b"[" * 80 + b"]" * 80,
    b'{"marker":1}',
)
_COMPARATORS: Final = ["version", "exists", "eq", "ne", "lt", "le", "gt", "ge"]
_VALUES: Final[tuple[Any, ...]] = (
    0,
    1,
    5,
    -3,
    10,
    2.5,
    1.0,
    -0.0,
    "a",
    'é"\\\n',
    "",
    True,
    False,
    [],
    [1],
    {"x": None},
    2**63 - 1,
)


_DEADLINE: Final = re.compile(rb'("deadline_ms": )([0-9]+)')


@dataclass
class Deadlines:
    """Clients with deadlines, which send again what they have sent a while ago.

    ``now``: the newest commit time that they could know of. ``rate``: which share of the
    transactions has a deadline. ``retries``: which share of the records is sent again.
    """

    random: random.Random
    now: Callable[[], int]
    rate: float
    retries: float
    sent: list[bytes] = field(default_factory=list)

    def add(self, found: dict[str, Any]) -> None:
        """Give a transaction a deadline: mostly soon, sometimes before, far, or too far ahead."""
        if self.random.random() < self.rate:
            most = self.random.choice(_AHEAD_MS)
            deadline_ms = self.now() + self.random.randint(most // 2, most)
            place = self.random.randrange(len(found) + 1)
            parts = list(found.items())
            parts.insert(place, ("deadline_ms", deadline_ms))
            found.clear()
            found.update(parts)

    def again(self) -> bytes | None:
        """A record that was sent before, sometimes with a new deadline."""
        if not self.sent or self.random.random() >= self.retries:
            return None
        raw = self.random.choice(self.sent[-self.random.choice([1, 5, 30, 300]) :])
        if self.random.random() < 0.3:
            later = b"%d" % (self.now() + self.random.choice([0, 5, 100]))
            raw = _DEADLINE.sub(lambda found: found[1] + later, raw)
        return raw


_AHEAD_MS: Final = (0, 2, 10, 30, 30, 100, 400, 3_600_000, 7_300_000)


@dataclass
class Workload:
    """Draws records. ``keys``: what they touch; ``reuse``: how often an id is used again.

    ``calls``: draws deploys and calls of stored procedures. ``flows``: those of a workflow.
    ``declarations``: draws constraints. ``large``: draws transactions with large values.
    ``ranges``: puts ranges into transactions. ``expiry``: says when keys end. ``leases``: draws
    ranges whose only key ends.
    ``drawn``: records before the next one in the log.
    """

    random: random.Random
    keys: list[str]
    reuse: float
    hostile: float
    simple: float
    calls: Calls | None = None
    flows: FlowCalls | None = None
    declarations: Declarations | None = None
    large: LargeValues | None = None
    ranges: Ranges | None = None
    expiry: Expiry | None = None
    leases: Leases | None = None
    drawn: int = 0
    count: int = 0
    last: bytes | None = None
    deadlines: Deadlines | None = None

    def record(self) -> bytes | None:
        """The next record's value."""
        self.drawn += 1
        again = None if self.deadlines is None else self.deadlines.again()
        if again is not None:
            return again
        draw = self.random.random()
        if draw < self.hostile:
            return self.random.choice([*_HOSTILE, None])
        if draw < self.hostile + self.reuse / 3 and self.last is not None:
            return self.last
        found = self._any()
        if self.deadlines is not None:
            self.deadlines.add(found)
        self.last = json.dumps(found, ensure_ascii=False).encode()
        if self.deadlines is not None:
            self.deadlines.sent.append(self.last)
        return self.last

    def _any(self) -> dict[str, Any]:
        """A transaction, or a declaration in its place."""
        found = self._transaction()
        if self.leases is not None and self.leases.wanted():
            return {"id": found["id"], **self.leases.parts()}
        if self.ranges is not None:
            self.ranges.add(found, self.drawn)
        if self.expiry is not None:
            self.expiry.add(found)
        if self.declarations is not None:
            if self.declarations.wanted():
                parts = self.declarations.parts(self.drawn)
                if self.ranges is not None:
                    self.ranges.bound(parts)
                return {"id": found["id"], **parts}
            contest = self.declarations.contest()
            if contest is not None:
                found = {"id": found["id"], **contest}
            else:
                self.declarations.lock(found)
            if self.ranges is not None:
                self.ranges.lock(found)
        return found

    def _transaction(self) -> dict[str, Any]:
        rng = self.random
        self.count += 1
        number = rng.randrange(self.count) if rng.random() < self.reuse else self.count
        found: dict[str, Any] = {"id": f"t{number}"}
        if self.large is not None and self.large.wanted():
            return found | self.large.parts()
        if self.flows is not None and self.flows.wanted():
            return found | self.flows.parts()
        if self.calls is not None and self.calls.wanted():
            return found | self.calls.parts()
        if rng.random() < self.simple:
            a, b = rng.choice(self.keys), rng.choice(self.keys)
            found["updates"] = [{"op": "add", "key": a, "by": -1, "min": -4}]
            if a != b:
                found["updates"].append({"op": "add", "key": b, "by": 1})
            return found
        if rng.random() < 0.25:
            chosen = rng.sample(self.keys, min(2, len(self.keys)))
            found["asserts"] = {key: rng.choice([None, *_VALUES]) for key in chosen}
        if rng.random() < 0.35:
            found["checks"] = [self._check() for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.4:
            found["reads"] = [rng.choice(self.keys) for _ in range(rng.randint(0, 3))]
        chosen = rng.sample(self.keys, rng.randint(0, min(3, len(self.keys))))
        found["updates"] = [self._update(key) for key in chosen]
        return found

    def _check(self) -> dict[str, Any]:
        rng = self.random
        check: dict[str, Any] = {"key": rng.choice(self.keys)}
        for name in rng.sample(_COMPARATORS, 1 + rng.randrange(2)):
            if name == "version":
                check[name] = rng.choice([0, rng.randrange(60)])
            elif name == "exists":
                check[name] = rng.random() < 0.5
            elif name in ("eq", "ne"):
                check[name] = rng.choice([None, *_VALUES])
            else:
                check[name] = rng.choice([0, 1, 5, 2.5, "a"])
        return check

    def _update(self, key: str) -> dict[str, Any]:
        rng = self.random
        op = rng.choice(["put", "delete", "add", "add", "max", "min", "append", "next_id", "put"])
        update: dict[str, Any] = {"op": op, "key": key}
        if op in ("put", "append"):
            update["value"] = rng.choice(_VALUES)
        elif op == "add":
            update["by"] = rng.choice([1, -1, 5, 0.5, 2**62])
            if rng.random() < 0.5:
                update["min"] = rng.choice([0, -2, 0.5])
            if rng.random() < 0.2:
                update["max"] = 7
        elif op in ("max", "min"):
            update["value"] = rng.choice([0, 3, 2.5, -1])
        return update
