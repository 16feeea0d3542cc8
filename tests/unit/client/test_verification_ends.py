"""What `verify` calls valid holds at every later seq, whatever time does to the keys.

Each rule is tried with each way in which a key changes without a transaction of its own: an end
from before the rule, by each operation that sets or keeps one, in the database itself or in one
that was made of its snapshot. The judge knows the rule's words alone, and looks at the state after
every seq.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from streamydb.client import AbortedError, Client, Options
from streamydb.client.session import Session
from streamydb.client.verification import verify
from streamydb.constraints.core import parse
from streamydb.records import canonical
from streamydb.testing.clients import MemoryHost
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import thinned

START: Final = 1_700_000_000_000
LIFE_MS: Final = 60_000
State = dict[str, Any]

RULES: Final[dict[str, dict[str, Any]]] = {
    "required": {"required": True},
    "required and type": {"required": True, "type": "object"},
    "type": {"type": "object"},
    "schema": {"schema": {"required": ["email"]}},
    "unique": {"unique": "$.email"},
    "unique and required": {"unique": "$.email", "required": True},
    "keys": {"keys": {"max": 3}},
    "keys of groups": {"prefix": "u", "keys": {"max": 3, "each": "/"}},
}
"""Rules that the keys `u/a`, `u/b` and `u/c` keep while nothing ends."""


def value(name: str) -> dict[str, Any]:
    return {"email": f"{name}@example.org"}


def ends_by_put(client: Client) -> None:
    client.put("u/a", value("a"), ttl_ms=LIFE_MS)


def ends_by_touch(client: Client) -> None:
    client.put("u/a", value("a"))
    client.transaction(updates=[{"op": "touch", "key": "u/a", "ttl_ms": LIFE_MS}])


def ends_and_is_made_again(client: Client) -> None:
    client.put("u/a", value("a"), ttl_ms=1)
    client.put("u/a", value("a"), ttl_ms=LIFE_MS)


def ends_no_more(client: Client) -> None:
    client.put("u/a", value("a"), ttl_ms=LIFE_MS)
    client.transaction(updates=[{"op": "touch", "key": "u/a"}])


def all_end(client: Client) -> None:
    for name in "abc":
        client.put(f"u/{name}", value(name), ttl_ms=LIFE_MS)


def none_ends(client: Client) -> None:
    client.put("u/a", value("a"))


WAYS: Final[tuple[Callable[[Client], None], ...]] = (
    ends_by_put,
    ends_by_touch,
    ends_and_is_made_again,
    ends_no_more,
    all_end,
    none_ends,
)


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    database = MemoryDatabase()
    database.clock = lambda: START
    with MemoryHost(database=database) as running:
        yield running


def states(host: MemoryHost, upto: int) -> list[State]:
    """The users' state after every seq, as snapshots show it."""
    found: list[State] = []
    with host.connect("direct") as client:
        for seq in range(upto + 1):
            entries = client.scan("u/", at=seq) if seq else []
            found.append({entry.key: entry.value for entry in entries})
    return found


def keeps(rule: dict[str, Any], before: State, after: State) -> bool:
    """Judge a state, and what became of the one before, by the words of the documentation."""
    kept = not rule.get("required") or before.keys() <= after.keys()
    kept &= all(isinstance(each, dict) for each in after.values()) or "type" not in rule
    kept &= all("email" in each for each in after.values()) or "schema" not in rule
    if "unique" in rule:
        kept &= max(Counter(each["email"] for each in after.values()).values(), default=0) <= 1
    return kept and len(after) <= rule.get("keys", {}).get("max", 99)


def pass_time(host: MemoryHost, client: Client) -> None:
    """Let time go beyond all ends, with transactions of others in between."""
    for part in range(1, 5):
        host.database.now_ms = START + part * LIFE_MS // 2
        client.put("other", part)


@pytest.mark.parametrize("skew_ms", thinned([0, 7_200_000, -7_200_000], 3))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RULES)
def test_a_valid_rule_holds_at_every_later_seq(
    host: MemoryHost, name: str, way: Callable[[Client], None], skew_ms: int
) -> None:
    rule = RULES[name]
    session = Session(Options(), wall_ms=lambda: max(START, host.database.now_ms) + skew_ms)
    with host.connect("direct", session=session) as client:
        for each in "bc":
            client.put(f"u/{each}", value(each))
        way(client)
        declare(client, rule)
        report = verify(client, "rule")
        ends = {e.key: e.expires_ms for e in client.scan("u/") if e.expires_ms is not None}
        assert set(ends.values()) <= {START + LIFE_MS}, "verify has moved an end"
        broken = {found.key for found in report.violations}
        assert broken == (set(ends) if rule.get("required") else set())
        assert bool(report.valid) is not bool(broken)
        valid = client.entry("$constraints").version
        pass_time(host, client)
        seen = states(host, client.session.seq)
        if report.valid:
            later = list(itertools.pairwise(seen[valid - 1 :]))
            assert all(keeps(rule, before, after) for before, after in later)
            assert len(later) > 3
        if ends:
            assert set(seen[-1]) == set("u/a u/b u/c".split()) - set(ends)


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.get("required")])
@pytest.mark.parametrize("way", WAYS)
def test_no_end_is_set_after_the_rule(
    host: MemoryHost, name: str, way: Callable[[Client], None]
) -> None:
    """Then all writes are judged, and nothing has to be verified."""
    with host.connect("direct") as client:
        for each in "abc":
            client.put(f"u/{each}", value(each))
        declare(client, RULES[name])
        assert verify(client, "rule").valid == ["rule"]
        valid = client.session.seq
        if way is none_ends:
            way(client)
        else:
            with pytest.raises(AbortedError, match="constraint"):
                way(client)
        pass_time(host, client)
        later = itertools.pairwise(states(host, client.session.seq)[valid:])
        assert all(keeps(RULES[name], before, after) for before, after in later)


def declare(client: Client, rule: dict[str, Any]) -> None:
    client.transaction(constrain={"declare": {"name": "rule", "prefix": "u/", **rule}})


@pytest.mark.parametrize("name", RULES)
def test_a_database_of_a_snapshot_is_verified_anew(host: MemoryHost, name: str) -> None:
    """Its keys have the time that was left, and the rule is declared behind them."""
    with host.connect("direct") as client:
        ends_by_put(client)
        entry = client.entry("u/a")
        assert entry.expires_ms is not None
        left_ms = entry.expires_ms - entry.ts_ms
    copy = MemoryDatabase()
    copy.clock = lambda: START + 3_600_000
    with MemoryHost(database=copy) as made, made.connect("direct") as client:
        client.put("u/a", value("a"), ttl_ms=left_ms)
        declare(client, RULES[name])
        report = verify(client, "rule")
        assert bool(report.valid) is not bool(RULES[name].get("required"))
        (rule,) = parse(canonical(client.get("$constraints"))).all
        assert (rule.valid is not None) is bool(report.valid)
