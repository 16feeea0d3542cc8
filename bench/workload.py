"""Seeded transactions by the million: bank transfers, drawn with numpy.

Zipf: the rank r of n keys is drawn with probability proportional to 1 / r**theta (Gray et al.,
"Quickly generating billion-record synthetic databases", SIGMOD 1994, as YCSB uses it), here by
inversion of the exact distribution; ranks are scattered over the keys by a seeded permutation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "BALANCE",
    "DISTRIBUTIONS",
    "KEYS_A_LOAD",
    "Bank",
    "Workload",
    "Zipf",
    "follow_ups_each",
    "funding",
]

Ints = npt.NDArray[np.int64]

DISTRIBUTIONS: Final = ("uniform", "zipf", "hotpair")
"""How the two accounts of a transfer are drawn."""

BALANCE: Final = 1_000_000
"""What an account begins with: enough that no transfer is refused, so every one does its work."""

KEYS_A_LOAD: Final = 50
"""How many keys one transaction of the loading phase writes."""

_TRANSFER: Final = (
    b'{"id":"%s%%d","updates":[{"op":"add","key":"%s%%d","by":-%d,"min":0},'
    b'{"op":"add","key":"%s%%d","by":%d}]}'
)


class Workload(Protocol):
    """What makes transactions."""

    changes_each: float
    """Changes that a transaction causes, on average."""

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make `count` transactions with the ids `<prefix><first>`, `<prefix><first + 1>`, ..."""
        ...


def follow_ups_each(workload: Workload) -> int:
    """How many transactions follow from each one of a workload: its `follow_ups_each`, if any."""
    return int(getattr(workload, "follow_ups_each", 0))


class Zipf:
    """Draws key numbers 0 .. n-1, a few of them often."""

    def __init__(self, n: int, theta: float, rng: np.random.Generator) -> None:
        """Prepare the distribution of `n` keys with the exponent `theta`."""
        weights = np.arange(1, n + 1, dtype=np.float64) ** -theta
        self._cumulated = np.cumsum(weights)
        self._scatter = rng.permutation(n).astype(np.int64)
        self._rng = rng

    def draw(self, count: int) -> Ints:
        """Draw `count` key numbers."""
        at = self._rng.random(count) * self._cumulated[-1]
        ranks = np.searchsorted(self._cumulated, at, side="right")
        numbers: Ints = self._scatter[np.minimum(ranks, len(self._scatter) - 1)]
        return numbers


class Bank:
    """Transfers of `amount` between two different accounts; no account may go below 0."""

    changes_each = 2.0

    def __init__(
        self,
        accounts: int,
        distribution: str = "uniform",
        seed: int = 1,
        *,
        theta: float = 0.99,
        amount: int = 1,
        id_prefix: str = "t",
        key_prefix: str = "acct/",
    ) -> None:
        """Prepare transfers between `accounts` >= 2 accounts.

        Raises:
            ValueError: too few accounts, or an unknown distribution.
        """
        if accounts < 2:
            raise ValueError(f"a transfer needs 2 accounts, {accounts} given")
        if distribution not in DISTRIBUTIONS:
            raise ValueError(f"{distribution!r} is none of {', '.join(DISTRIBUTIONS)}")
        self._accounts, self._distribution = accounts, distribution
        self._rng = np.random.default_rng(seed)
        self._zipf = Zipf(accounts, theta, self._rng) if distribution == "zipf" else None
        key, prefix = key_prefix.encode(), id_prefix.encode()
        self._template = _TRANSFER % (prefix, key, amount, key, amount)

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make transfers; see `Workload.payloads`."""
        template, (source, target) = self._template, self.pairs(count)
        numbers = range(first, first + count)
        return [template % row for row in zip(numbers, source, target, strict=True)]

    def pairs(self, count: int) -> tuple[list[int], list[int]]:
        """Draw the accounts of `count` transfers: (from, to)."""
        if self._distribution == "hotpair":
            source = self._rng.integers(0, 2, count)
            return source.tolist(), (1 - source).tolist()
        source, target = self._draw(count), self._draw(count)
        same = source == target
        target[same] = (source[same] + 1) % self._accounts
        return source.tolist(), target.tolist()

    def _draw(self, count: int) -> Ints:
        if self._zipf is not None:
            return self._zipf.draw(count)
        return self._rng.integers(0, self._accounts, count)


def funding(
    first_key: int,
    keys: int,
    value: bytes,
    *,
    first_id: int = 0,
    id_prefix: str = "t",
    key_prefix: str = "acct/",
) -> Iterator[bytes]:
    """Transactions that put `value` (canonical JSON) under `keys` keys, KEYS_A_LOAD each."""
    key, prefix = key_prefix.encode(), id_prefix.encode()
    last = first_key + keys
    for number, low in enumerate(range(first_key, last, KEYS_A_LOAD), first_id):
        puts = b",".join(
            b'{"op":"put","key":"%s%d","value":%s}' % (key, account, value)
            for account in range(low, min(last, low + KEYS_A_LOAD))
        )
        yield b'{"id":"%s%d","updates":[%s]}' % (prefix, number, puts)
