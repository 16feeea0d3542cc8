"""The requests of each case, the same for every server, and what their answers must hold (pure)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

__all__ = [
    "CASES", "CONSTANT", "FACADE", "KEYS_MIN", "KEYS_READ", "KEY_PREFIX", "POSTGRESQL", "SCANNED",
    "Case", "requests",
]  # fmt: skip

FACADE: Final = "streamydb"
POSTGRESQL: Final = "postgresql"
CONSTANT: Final = "constant"
"""The servers."""

KEY_PREFIX: Final = "user/"
"""Keys are this and a number from 0 on."""

KEYS_READ: Final = 16
"""Keys of a read-only transaction."""

SCANNED: Final = 100
"""Entries of a scan."""

KEYS_MIN: Final = 1_000
"""So many keys are needed: a scan begins at a key that has `SCANNED` keys behind it."""

_HOST: Final = "Host: 127.0.0.1\r\n"
_DRAWS: Final = 4_096

_Make = Callable[[random.Random, int, int], str]


class Case(NamedTuple):
    """What is asked again and again.

    Attributes:
        title: for people.
        peers: which servers it is compared with.
        entries: how many entries every answer holds; 0: answers are not looked into.
        writes: whether it changes the database.
        make: makes a request of chance, the number of keys, and the bytes of a value.
        rate: requests a second; 0: each client sends one when its last one was answered.
    """

    title: str
    peers: frozenset[str]
    entries: int
    writes: bool
    make: _Make
    rate: float = 0.0


def requests(case: str, keys: int, value_bytes: int, seed: int) -> Iterator[bytes]:
    """Yield requests without an end: some thousands of them are made, and repeated."""
    chance = random.Random(seed)  # noqa: S311 - a workload
    made = [CASES[case].make(chance, keys, value_bytes).encode() for _ in range(_DRAWS)]
    while True:
        yield from made


def _key(chance: random.Random, keys: int) -> str:
    return f"{KEY_PREFIX}{chance.randrange(keys)}"


def _get(consistency: str) -> _Make:
    def make(chance: random.Random, keys: int, _: int) -> str:
        target = f"/v1/kv/{_key(chance, keys)}?consistency={consistency}"
        return f"GET {target} HTTP/1.1\r\n{_HOST}\r\n"

    return make


def _balance(chance: random.Random, keys: int, _: int) -> str:
    target = f"/v1/kv/acct/{chance.randrange(keys)}?consistency=strong"
    return f"GET {target} HTTP/1.1\r\n{_HOST}\r\n"


def _live(_chance: random.Random, _keys: int, _bytes: int) -> str:
    return f"GET /health/live HTTP/1.1\r\n{_HOST}\r\n"


def _read(chance: random.Random, keys: int, _: int) -> str:
    numbers = chance.sample(range(keys), KEYS_READ)
    names = ",".join(f'"{KEY_PREFIX}{number}"' for number in numbers)
    return _with_body("POST", "/v1/read", f'{{"keys":[{names}],"consistency":"snapshot"}}')


def _scan(chance: random.Random, keys: int, _: int) -> str:
    while True:
        start = str(chance.randrange(keys))
        if start[0] < "9":  # of KEYS_MIN keys, more than SCANNED begin with a 9
            break
    target = f"/v1/kv?start={KEY_PREFIX}{start}&limit={SCANNED}&consistency=snapshot"
    return f"GET {target} HTTP/1.1\r\n{_HOST}\r\n"


def _put(chance: random.Random, keys: int, value_bytes: int) -> str:
    text = f"{chance.randrange(10**9):09d}"
    return _with_body("PUT", f"/v1/kv/{_key(chance, keys)}", f'"{text:v<{value_bytes}}"')


def _with_body(method: str, target: str, body: str) -> str:
    head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{method} {target} HTTP/1.1\r\n{_HOST}{head}\r\n{body}"


_ALL: Final = frozenset({POSTGRESQL, CONSTANT})

CASES: Final = {
    "live": Case("nothing", frozenset({CONSTANT}), 0, False, _live),
    "get": Case("1 key", _ALL, 0, False, _get("snapshot")),
    "strong": Case("1 key, strong", frozenset({POSTGRESQL}), 0, False, _get("strong")),
    "read": Case(f"{KEYS_READ} keys", _ALL, KEYS_READ, False, _read),
    "scan": Case(f"scan of {SCANNED}", _ALL, SCANNED, False, _scan),
    "balance": Case("1 account, strong", frozenset(), 0, False, _balance),
    "write": Case("write", _ALL, 0, True, _put),
    "rested": Case("write after a pause", frozenset(), 0, True, _put, rate=0.7),
}
"""All cases by name."""
