"""Expiry in a simulation: updates that say when their keys end, and commit times far apart."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Expiry", "Leases"]

_TTLS: Final = (1, 1, 2, 3, 5, 10, 30, 100, 1_000, 100_000)
_OWN_KEYS: Final = 100
_FREE_KEYS: Final = 30
_HELD: Final[tuple[dict[str, Any], ...]] = (
    {"count": 1}, {"count_ge": 1}, {"exists": True}, {"count": 0}, {"count_le": 0},
    {"exists": False}, {"version_le": 0}, {"version_le": 1 << 40},
)  # fmt: skip
"""Checks of a range that hold while one key is in it, or when none is."""
_DAMAGED: Final[tuple[Any, ...]] = (0, -1, 1.5, "1", None, True, 1 << 50)


@dataclass
class Expiry:
    """Gives updates times to live; ``rate``: how often."""

    random: random.Random
    keys: list[str]
    rate: float

    def add(self, found: dict[str, Any]) -> None:
        """Let updates of a transaction say when their keys end, or touch a key; or its call."""
        rng = self.random
        updates = found.get("updates")
        if self.rate and "call" in found and rng.random() < self.rate:
            key = rng.choice(self.keys)
            others = found["call"]["keys"] if rng.random() < 0.3 else []
            found["call"] = {
                "procedure": "sim.lease",
                "args": {"key": key, "ttl": self._ttl()},
                "keys": list(dict.fromkeys([key, *others])),
            }
            return
        if not self.rate or updates is None or rng.random() >= self.rate:
            return
        for update in updates:
            if update["op"] in ("put", "append") and rng.random() < 0.8:
                update["ttl_ms"] = self._ttl()
        own = [f"k2{rng.randrange(_OWN_KEYS)}e" for _ in range(3)]  # hardly touched by others
        known = self.keys if rng.random() < 0.5 else list(dict.fromkeys(own))
        free = [key for key in known if all(update["key"] != key for update in updates)]
        if free and rng.random() < 0.5:
            update = {"op": "put", "key": rng.choice(free), "value": 1, "ttl_ms": self._ttl()}
            if rng.random() < 0.5:
                update = {"op": "touch", "key": rng.choice(free)}
                if rng.random() < 0.8:
                    update["ttl_ms"] = self._ttl()
            updates.insert(rng.randint(0, len(updates)), update)

    def _ttl(self) -> Any:
        rng = self.random
        return rng.choice(_DAMAGED) if rng.random() < 0.02 else rng.choice(_TTLS)


@dataclass
class Leases:
    """Draws keys that end soon, each alone in a range, and checks of these ranges by transactions
    whose own keys never end; ``rate``: how often. ``made``: the ranges so far.
    """

    random: random.Random
    rate: float
    made: list[str] = field(default_factory=list)

    def wanted(self) -> bool:
        """Return True if the next transaction is one of these."""
        return self.rate > 0 and self.random.random() < self.rate

    def parts(self) -> dict[str, Any]:
        """A transaction without its id."""
        rng = self.random
        if not self.made or rng.random() < 0.4:
            self.made.append(f"l{len(self.made)}/")
            lease = {"op": "put", "key": f"{self.made[-1]}1", "value": 1}
            return {"updates": [lease | {"ttl_ms": rng.choice((1, 1, 2, 5))}]}
        checked = {"range": {"prefix": rng.choice(self.made[-3:])}, **rng.choice(_HELD)}
        free = rng.sample(range(_FREE_KEYS), rng.randint(1, 3))
        puts = [{"op": "put", "key": f"m{i}", "value": len(self.made)} for i in free]
        return {"checks": [checked], "updates": puts}
