"""A bank of few accounts: transfers that conflict, some of which abort."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def transfers(count: int, seed: int = 1, accounts: int = 50, prefix: str = "t") -> Iterator[Any]:
    """Transactions: openings first, then transfers with a lower bound, reads and checks."""
    rng = random.Random(seed)
    for i in range(count):
        a, b = rng.sample(range(accounts), 2)
        amount = rng.randint(1, 9)
        update = [
            {"op": "add", "key": f"acct/{a}", "by": -amount, "min": -50},
            {"op": "add", "key": f"acct/{b}", "by": amount},
        ]
        transaction: dict[str, Any] = {"id": f"{prefix}{seed}-{i}", "updates": update}
        if i % 7 == 0:
            transaction["reads"] = [f"acct/{a}", f"acct/{b}"]
        if i % 11 == 0:
            transaction["checks"] = [{"key": f"acct/{a}", "lt": 40}]
        if i % 13 == 0:
            transaction["updates"].append({"op": "append", "key": "log", "value": i})
            transaction["asserts"] = {"never": None}
        yield transaction
        if i % 17 == 0:
            yield transaction
