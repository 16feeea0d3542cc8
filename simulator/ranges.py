"""Ranges in a simulation: transactions that check and read them, with a limit that is small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from unittest import mock

from streamydb import limits

__all__ = ["Ranges", "few_keys"]

_PREFIXES: Final = ("k", "k", "k1", "k2", "k3", "é", "$", "$unique/", "q", "\U0010ffff")
_DAMAGED: Final[tuple[Any, ...]] = (
    {"range": {}},
    {"range": {"prefix": ""}},
    {"range": {"start": "k"}},
    {"range": None},
    {"range": {"prefix": "k"}, "key": "k1", "count": 1},
    {"range": {"prefix": "k"}, "eq": 1},
)
_BOUNDS: Final[tuple[dict[str, Any], ...]] = (
    {"prefix": "k", "keys": {"max": 3}}, {"prefix": "", "keys": {"max": 2, "each": "k"}},
    {"prefix": "k", "keys": {"max": 4, "each": "/"}}, {"prefix": "k1", "keys": {"max": 1}},
    {"prefix": "k", "keys": {"max": 6}, "type": "integer"}, {"prefix": "", "keys": {"max": 3}},
    {"prefix": "k", "keys": {"max": 0}}, {"prefix": "é", "keys": {"max": 1, "each": "/"}},
)  # fmt: skip
_COUNTED: Final = ("k", "k/", "k1", "é/")
"""Prefixes of the ranges whose keys they count."""
_NAMES: Final = ("count", "count_le", "count_ge", "exists", "version_le")


@contextmanager
def few_keys(most: int) -> Iterator[None]:
    """Run the body with ranges that may have so many keys; 0: as many as ever."""
    with mock.patch.object(limits, "RANGE_KEYS_MAX", most or limits.RANGE_KEYS_MAX):
        yield


@dataclass
class Ranges:
    """Puts ranges into transactions; ``rate``: how often. ``most``: keys that they may have.

    ``scans``: a chance of its own, for the calls that scan, and for constraints that count keys.
    """

    random: Random
    keys: list[str]
    rate: float
    most: int
    scans: Random

    def add(self, found: dict[str, Any], drawn: int) -> None:
        """Let a transaction check or read ranges; ``drawn``: records before it, about."""
        rng = self.random
        if self.rate and "call" in found:
            self._let_scan(found["call"])
        if not self.rate or rng.random() >= self.rate:
            return
        checks, reads = list(found.get("checks", [])), list(found.get("reads", []))
        for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
            checks.insert(rng.randint(0, len(checks)), self._check(drawn))
        for _ in range(rng.choice([0, 0, 1, 1, 3])):
            reads.insert(rng.randint(0, len(reads)), {"range": self._range()})
        if rng.random() < 0.03:
            rng.choice([checks, reads]).append(rng.choice(_DAMAGED))
        found.update({name: part for name, part in (("checks", checks), ("reads", reads)) if part})
        if found.get("updates") and self.scans.random() < 0.5:
            self._make_compilable(found, drawn)

    def _make_compilable(self, found: dict[str, Any], drawn: int) -> None:
        """Leave checks of a range that may well hold, and an update of a key in it."""
        rng, keys = self.scans, self.keys
        prefix = rng.choice(["k", "k1", "k2", "é", rng.choice(keys)])
        inside = [key for key in keys if key.startswith(prefix)] or keys
        compared = rng.choice(("count_le", "count_ge", "count"))
        check = {"range": {"prefix": prefix}, compared: rng.randrange(len(inside) + 1)}
        if rng.random() < 0.2:
            check["version_le"] = rng.choice([drawn, drawn // 2, 1 << 40])
        op = {"op": "delete"} if rng.random() < 0.4 else {"op": "put", "value": drawn}
        found["checks"], found["updates"] = [check], [{"key": rng.choice(inside), **op}]
        found.pop("asserts", None)
        found.pop("reads", None)

    def bound(self, parts: dict[str, Any]) -> None:
        """Put a rule that counts keys in the place of a declared one, now and then."""
        declared = parts["constrain"].get("declare")
        if self.rate and declared is not None and self.scans.random() < self.rate:
            rules = self.scans.choice(_BOUNDS)
            parts["constrain"] = {"declare": {"name": declared["name"], **rules}}

    def lock(self, found: dict[str, Any]) -> None:
        """Let a transaction name ranges whose keys are counted, most times all of them."""
        rng = self.scans
        if self.rate and found.get("updates") and rng.random() < 0.8:
            prefixes = _COUNTED if rng.random() < 0.7 else rng.sample(_COUNTED, 2)
            ranges = [{"range": {"prefix": prefix}} for prefix in prefixes]
            found["locks"] = [*found.get("locks", []), *ranges]

    def _let_scan(self, call: dict[str, Any]) -> None:
        """Put a procedure that scans in the place of the one that is called, now and then."""
        rng, kept = self.scans, self.random
        if rng.random() >= self.rate or not call["procedure"].startswith("sim."):
            return
        self.random = rng
        named = self._range()
        declared = [named, *(self._range() for _ in range(rng.choice([0, 0, 1, 2])))]
        self.random = kept
        if rng.random() < 0.1:
            declared = declared[1:]
        if rng.random() < 0.03:
            declared.append(rng.choice(_DAMAGED)["range"])
        into = rng.choice(self.keys)
        call |= {"procedure": "sim.scan", "args": {"named": named, "into": into}}
        call |= {"keys": [into], "ranges": declared}

    def _range(self) -> dict[str, str]:
        rng = self.random
        if rng.random() < 0.5:
            return {"prefix": rng.choice([*_PREFIXES, rng.choice(self.keys)])}
        bounds = [rng.choice(self.keys), rng.choice([*self.keys, "z", "\x00"])]
        start, end = bounds if rng.random() < 0.1 else sorted(bounds)
        return {"start": start, "end": end}

    def _check(self, drawn: int) -> dict[str, Any]:
        rng, named = self.random, self._range()
        check: dict[str, Any] = {"range": named}
        for name in rng.sample(_NAMES, rng.choice([1, 1, 2, 3])):
            if name == "exists":
                check[name] = rng.random() < 0.7
            elif name == "version_le":
                check[name] = rng.choice([0, drawn // 2, drawn, drawn, 1 << 40])
            else:
                few, most = rng.randrange(len(self.keys) + 1), len(self.keys)
                likely = {"count": few, "count_ge": few // 3, "count_le": most - few // 3}
                check[name] = likely[name]
        return check
