"""The constraints of a simulation: declared and dropped in the middle, with index keys to lock."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from streamydb.constraints import parse
from streamydb.records import canonical

__all__ = ["Declarations"]

_RULES: Final[tuple[dict[str, Any], ...]] = (
    {"type": "number"}, {"type": "integer", "min": -2}, {"max": 4}, {"required": True},
    {"length": {"max": 2}}, {"length": {"min": 1}, "type": "string"},
    {"schema": {"anyOf": [{"type": ["integer", "string"]}, {"maxItems": 1, "type": "array"}]}},
    {"schema": {"not": {"const": 0}}}, {"schema": {"pattern": "x"}}, {"min": "1"}, {},
    {"schema": {"properties": {"sum": {"maximum": 9}}}},
    {"unique": "email"}, {"type": "object", "schema": {"properties": {"version": {"const": 1}}}},
)  # fmt: skip
_UNIQUE: Final[tuple[dict[str, Any], ...]] = (
    {"unique": "$"}, {"unique": "$", "type": "integer"}, {"unique": "$.x"},
)  # fmt: skip
_PREFIXES: Final = ("", "k", "k", "k1", "k2", "é", "q", "$x", "flow/")
_LIKELY: Final = (*range(-9, 10), 2.5, 0.5, "a", "", True, False, [], [1], {"x": None}, {"x": 1})


@dataclass
class Declarations:
    """Draws declarations, and the locks of other transactions.

    ``random``: a chance of its own, so that other records stay. ``rate``: of declarations.
    ``locks``: index keys of likely values (which of the small integers they are for), of the latest
    declarations: right when the log has one partition, where a record's place is its seq.
    """

    random: random.Random
    rate: float
    locks: deque[dict[str, int | None]] = field(default_factory=lambda: deque(maxlen=2))
    contested: int = 0

    def wanted(self) -> bool:
        """Return True if the next record is one of ours."""
        return self.random.random() < self.rate

    def parts(self, number: int) -> dict[str, Any]:
        """The fields of a declaration, without its id; it is record ``number`` of the log."""
        rng = self.random
        name = rng.choice(["a", "b", "c"])
        draw = rng.random()
        if draw < 0.15:
            return {"constrain": {"drop": name}}
        if draw < 0.25:
            proof = {"name": name, "since": rng.randint(1, number), "at": rng.randint(1, 90)}
            return {"constrain": {"validate": proof}}
        rules = rng.choice(_UNIQUE if rng.random() < 0.6 else _RULES)
        declared = {**rules, "prefix": rng.choice(_PREFIXES)}
        if rules in _UNIQUE:
            self._remember(name, {**declared, "since": number})
        return {"constrain": {"declare": {"name": name, **declared}}}

    def contest(self) -> dict[str, Any] | None:
        """Now and then: a new key that wants a value of which there are few, and no more locks.

        Such transactions have nothing else in common, so a planner spreads them.
        """
        rng = self.random
        if not self.locks or rng.random() < 0.5:
            return None
        value = rng.randint(0, 3)
        self.contested += 1
        put = {"op": "put", "key": f"k/{self.contested}", "value": value}
        locks = [key for keys in self.locks for key, number in keys.items() if number == value]
        return {"updates": [put], "locks": locks}

    def lock(self, txn: dict[str, Any]) -> None:
        """Give a transaction locks as a client would, now and then some that miss or are old."""
        rng = self.random
        draw = rng.random()
        if draw < 0.1 or not self.locks:
            return
        known = [key for keys in self.locks for key in keys]
        txn["locks"] = rng.sample(known, len(known) // 2) if draw < 0.2 else known

    def _remember(self, name: str, entry: dict[str, Any]) -> None:
        (rule,) = parse(canonical({name: entry})).all
        found = (rule.index_key(canonical(value)) for value in _LIKELY)
        self.locks.append(
            {
                key: value if type(value) is int else None
                for value, key in zip(_LIKELY, found, strict=True)
                if key is not None
            }
        )
