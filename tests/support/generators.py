"""Hypothesis strategies for values, transactions and logs; what several test modules need."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from streamydb.limits import TTL_MS_MAX

KEYS = st.sampled_from(["a", "b", "c", "acct/1", "é", '"\\', "\x00", "n" * 20])
"""Few keys, so that transactions meet."""

INTEGERS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**63 - 1, -(2**63), 2**53, 2**53 + 1, 10**18]),
    st.integers(-(2**63), 2**63 - 1),
)
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.5, -2.5, 1e16, 2.0**53, 2.0**63, 1e308, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
)
NUMBERS = st.one_of(INTEGERS, FLOATS)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
VALUES = JSON.filter(lambda value: value is not None)
STORED = st.one_of(st.integers(-3, 3), st.sampled_from(["x", [], [1], True, 0.5]), VALUES)
"""Values as a put stores them, often small numbers, so that checks and adds meet them."""

TTLS: dict[str, st.SearchStrategy[Any]] = {
    "ttl_ms": st.one_of(st.integers(1, 5), st.integers(1, TTL_MS_MAX))
}
PLAIN_UPDATES = st.one_of(
    st.fixed_dictionaries({"op": st.just("put"), "key": KEYS, "value": STORED}),
    st.fixed_dictionaries({"op": st.just("delete"), "key": KEYS}),
    st.fixed_dictionaries(
        {"op": st.just("add"), "key": KEYS, "by": NUMBERS},
        optional={"min": NUMBERS, "max": NUMBERS},
    ),
    st.fixed_dictionaries({"op": st.sampled_from(["max", "min"]), "key": KEYS, "value": NUMBERS}),
    st.fixed_dictionaries({"op": st.just("append"), "key": KEYS, "value": JSON}),
    st.fixed_dictionaries({"op": st.just("next_id"), "key": KEYS}),
)
"""Updates that say nothing of ends."""

UPDATES = st.one_of(
    PLAIN_UPDATES,
    PLAIN_UPDATES,
    PLAIN_UPDATES,
    st.fixed_dictionaries({"op": st.just("put"), "key": KEYS, "value": STORED, **TTLS}),
    st.fixed_dictionaries({"op": st.just("append"), "key": KEYS, "value": JSON, **TTLS}),
    st.fixed_dictionaries({"op": st.just("touch"), "key": KEYS}, optional=TTLS),
)
OPERANDS = st.one_of(NUMBERS, TEXTS)
COMPARATORS: dict[str, st.SearchStrategy[Any]] = {
    "version": st.integers(0, 5),
    "exists": st.booleans(),
    "eq": st.one_of(st.none(), STORED),
    "ne": st.one_of(st.none(), STORED),
    "lt": OPERANDS,
    "le": OPERANDS,
    "gt": OPERANDS,
    "ge": OPERANDS,
}
CHECKS = st.fixed_dictionaries({"key": KEYS}, optional=COMPARATORS).filter(
    lambda check: len(check) > 1
)
RANGES = st.one_of(
    st.fixed_dictionaries({"prefix": KEYS}), st.fixed_dictionaries({"start": KEYS, "end": KEYS})
)
RANGE_CHECKS = st.fixed_dictionaries(
    {"range": RANGES},
    optional={
        "exists": st.booleans(),
        **dict.fromkeys(("count", "count_le", "count_ge", "version_le"), st.integers(0, 5)),
    },
).filter(lambda check: len(check) > 1)
READS = st.one_of(KEYS, KEYS, KEYS, st.fixed_dictionaries({"range": RANGES}))
IDS = st.one_of(st.sampled_from(["t1", "t2", "t3"]), st.uuids().map(str))
TRANSACTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"id": IDS},
    optional={
        "asserts": st.dictionaries(KEYS, st.one_of(st.none(), STORED), max_size=2),
        "checks": st.lists(st.one_of(CHECKS, CHECKS, RANGE_CHECKS), max_size=2),
        "reads": st.lists(READS, max_size=3),
        "updates": st.lists(UPDATES, max_size=3, unique_by=lambda update: update["key"]),
    },
)
"""Valid transactions as Python objects."""


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid transaction with one place in it replaced, added or removed."""
    transaction = copy.deepcopy(draw(TRANSACTIONS))  # sampled lists are shared
    path: Any = transaction
    while True:
        places = list(path) if isinstance(path, dict) else list(range(len(path)))
        if not places:
            return transaction
        place = draw(st.sampled_from(places))
        if isinstance(path[place], dict | list) and draw(st.booleans()):
            path = path[place]
            continue
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "remove":
            del path[place]
        elif action == "replace" or isinstance(path, list):
            path[place] = draw(JSON)
        else:
            path[draw(st.sampled_from(["op", "key", "value", "marker", "x", ""]))] = draw(JSON)
        return transaction


def as_bytes(transaction: Any) -> bytes:
    """A transaction as a client may send it: with whitespace and escapes."""
    return json.dumps(transaction).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The bytes of a valid transaction with a few bytes replaced, removed or inserted."""
    raw = bytearray(as_bytes(draw(TRANSACTIONS)))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(raw)))
        end = min(len(raw), start + draw(st.integers(0, 4)))
        raw[start:end] = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [b"1e400", b"NaN", b"null", b"\\ud800", b"-0", b"99999999999999999999", b'"']
                ),
            )
        )
    return bytes(raw)


PAYLOADS: st.SearchStrategy[bytes | None] = st.one_of(
    TRANSACTIONS.map(as_bytes),
    TRANSACTIONS.map(as_bytes),
    mutated().map(as_bytes),
    damaged(),
    JSON.map(as_bytes),
    st.binary(max_size=40),
    st.none(),
)
"""What may lie in a log: mostly valid transactions, but anything else too."""
