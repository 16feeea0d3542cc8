"""A bank of few accounts: transfers that conflict, some of which abort; load in the background."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def appending(
    append: Callable[[int], object], parts: Iterable[int] | None = None
) -> Iterator[None]:
    """Append part after part in the background while the body runs; without ``parts`` no end."""
    ended = threading.Event()

    def run() -> None:
        for part in itertools.count() if parts is None else parts:
            if ended.is_set():
                return
            append(part)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
