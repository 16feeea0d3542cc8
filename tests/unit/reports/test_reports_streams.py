"""What users of streams of changes report, tried here; `tests/reports.md` names the reports."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from streamydb.client import Client
from streamydb.errors import ConfigurationError
from streamydb.kafka.connect import Copier
from streamydb.procedures.modules import compile_module
from streamydb.records import Change, ChangeOrigin, ChangeTransaction, canonical
from streamydb.records.connect import connect_key, connect_value
from streamydb.spark import readers
from streamydb.spark.rows import SeenRecords
from streamydb.testing.clients import MemoryHost
from tests.support.memory_copy import MemoryCopy
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import resolve, write
from tests.support.sinks import KEYS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
).filter(lambda value: value is not None)  # fmt: skip

TWICE = """
def made_and_removed(db):
    db.put("new", 1)
    db.delete("new")

def removed_and_made(db):
    db.delete("old")
    db.put("old", 2)

def made_again(db):
    db.put("old", 3)
    db.put("old", 4)
"""


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        running.database.tick_by_record(1_000)
        yield running


def change(before: Any, after: Any, seq: int = 7, expires_ms: int | None = None) -> Change:
    op: Literal["c", "u", "d"] = "c" if before is None else "d" if after is None else "u"
    return Change(
        op, Raw(canonical(before)), Raw(canonical(after)), 1_000 + seq,
        ChangeOrigin("streamydb", "bank", 0, seq, seq), ChangeTransaction("id", 1, 1),
        UNSET if expires_ms is None else expires_ms,
    )  # fmt: skip


def told(client: Client, watch: Any, count: int) -> list[tuple[Any, ...]]:
    """So many changes, and no other before the next write."""
    found = [next(watch) for _ in range(count)]
    end = client.put("~end", 1)
    assert next(watch).seq == end.seq
    return [(each.key, each.op, each.before, each.value) for each in found]


# The form of Kafka Connect


def mistaken(schema: dict[str, Any], value: Any, path: str) -> list[str]:
    """Where a value is not of a schema of Connect's: a field of it lacks, or is one too many."""
    if value is None:
        return [] if schema["optional"] else [path]
    kind = schema["type"]
    if kind != "struct":
        if kind == "string":
            return [] if isinstance(value, str) else [path]
        most = 1 << {"int32": 31, "int64": 63}[kind]
        return [] if type(value) is int and -most <= value < most else [path]
    fields = {each["field"]: each for each in schema["fields"]}
    if fields.keys() != value.keys():
        return [f"{path}: {sorted(fields.keys() ^ value.keys())}"]
    return [
        fault for name, each in fields.items()
        for fault in mistaken(each, value[name], f"{path}.{name}")
    ]  # fmt: skip


@given(
    st.sampled_from(KEYS) | TEXTS, st.none() | VALUES,
    st.none() | VALUES, st.none() | st.integers(1, 2**53),
)  # fmt: skip
def test_no_field_of_an_envelope_lacks_and_no_digit(
    key: str, before: Any, after: Any, expires_ms: int | None
) -> None:
    made = json.loads(connect_value(key, change(before, after, expires_ms=expires_ms)))
    named = json.loads(connect_key(key))
    assert mistaken(made["schema"], made["payload"], "value") == []
    assert mistaken(named["schema"], named["payload"], "key") == []
    assert named["payload"] == {"key": key}
    for name, value in (("before", before), ("after", after)):
        row = made["payload"][name]
        if value is None:
            assert row is None
        else:
            assert (row["key"], row["value"].encode()) == (key, canonical(value))
    if after is not None:
        assert made["payload"]["after"]["expires_ms"] == expires_ms


@pytest.mark.parametrize("seed", range(10))
def test_a_key_that_is_removed_and_made_in_one_batch_is_there(seed: int) -> None:
    """Whatever a sink does with a batch, the last record of a key says what it is."""
    rng = random.Random(seed)
    topic, copy, state = MemoryTopic(1), MemoryCopy(1), dict[str, str]()
    for seq in range(1, 60):
        key = rng.choice("ab")
        value = None if key in state and rng.random() < 0.6 else str(seq)
        write(topic, 0, seq, key, value)
        if value is None:
            del state[key]
        else:
            state[key] = value
    resolve(topic, 59)
    Copier("bank", MemorySource(topic), copy).step(0)
    last = {each.key: each.value for each in copy.records[0]}
    shown = {
        json.loads(key)["payload"]["key"]: json.loads(value)["payload"]["after"]["value"]
        for key, value in last.items() if value is not None
    }  # fmt: skip
    assert shown == state
    for one, next_one in zip(copy.records[0], copy.records[0][1:], strict=False):
        if one.value is not None and json.loads(one.value)["payload"]["after"] is None:
            assert (next_one.key, next_one.value) == (one.key, None)


# What a change tells


def test_the_value_before_is_that_of_the_change_before(host: MemoryHost) -> None:
    """A sum that takes `before` away and adds `after` is right after any writes."""
    rng, total = random.Random(3), 0
    with host.connect() as client, client.watch() as watch:
        for _ in range(200):
            key, draw = rng.choice("abc"), rng.random()
            if draw < 0.3:
                client.delete(key)
            elif draw < 0.6:
                client.put(key, rng.randint(0, 1))  # often what was there
            else:
                client.put(key, 5, ttl_ms=rng.randint(1, 4))
        end = client.put("~end", 0).seq
        for each in watch:
            total += (each.value or 0) - (each.before or 0)
            if each.seq == end and each.key == "~end":
                break
        assert total == sum(value or 0 for value in client.read(list("abc")).values())


def test_an_update_to_the_same_value_is_told_and_a_removal_of_nothing_is_not(
    host: MemoryHost,
) -> None:
    with host.connect() as client, client.watch() as watch:
        client.put("k", 1)
        client.put("k", 1)
        client.delete("k")
        client.delete("k")
        client.delete("never")
        assert told(client, watch, 3) == [
            ("k", "c", None, 1), ("k", "u", 1, 1), ("k", "d", 1, None),
        ]  # fmt: skip


@pytest.mark.parametrize("name", ["made_and_removed", "removed_and_made", "made_again"])
def test_a_transaction_tells_one_change_of_a_key(host: MemoryHost, name: str) -> None:
    module = compile_module("twice", TWICE.encode())
    host.database.modules.put(TWICE.encode())
    with host.connect() as client:
        client.transaction(deploy=module.record)
        client.put("old", 1)
        with client.watch() as watch:
            call = {"procedure": f"twice.{name}", "args": {}, "keys": ["new", "old"]}
            client.transaction(call=call)
            wanted = {
                "made_and_removed": [], "removed_and_made": [("old", "u", 1, 2)],
                "made_again": [("old", "u", 1, 4)],
            }[name]  # fmt: skip
            assert told(client, watch, len(wanted)) == wanted


def test_an_answer_that_was_lost_comes_again_with_its_version(host: MemoryHost) -> None:
    with host.connect() as client:
        for lost in range(3):
            host.faults.lost = lost
            done = client.atomic().add("n", 1).read("n").commit()
            assert (done.reads["n"], client.entry("n").version) == (lost + 1, done.seq)


# A topic that is made anew


class State:
    """The state of a group, as Spark hands it over."""

    def __init__(self) -> None:
        self.get: tuple[int, bytes] | None = None

    @property
    def exists(self) -> bool:
        return self.get is not None

    def update(self, value: tuple[int, bytes]) -> None:
        self.get = value


def batch(*seqs: int) -> pd.DataFrame:
    rows = [(0, n, "k", seq, 1, False, None) for n, seq in enumerate(seqs)]
    return pd.DataFrame(
        rows, columns=["partition", "offset", "key", "seq", "index", "resolved", "offsets"]
    )


def taken(topic: str, state: State, *seqs: int) -> list[int]:
    [shown] = readers._fresh(topic, iter([batch(*seqs)]), state)  # type: ignore[arg-type]
    found: list[int] = shown["seq"].tolist()
    return found


def test_a_stream_of_changes_does_not_go_on_with_another_topic() -> None:
    state = State()
    assert taken("first", state, 1, 2) == [1, 2]
    assert taken("first", state, 2, 3) == [3]
    kept = state.get
    with pytest.raises(ConfigurationError, match=r"made anew.*id first, and it has second now"):
        taken("second", state, 3, 4)
    assert state.get == kept


@pytest.mark.parametrize("seen", [False, True])
def test_a_checkpoint_without_a_topic_learns_it(*, seen: bool) -> None:
    state, above = State(), b""
    if seen:
        keyed = SeenRecords(4)
        keyed.fresh([(5, 1, "k", False)])
        above = keyed.pack()
    state.get = (4, above)
    assert taken("first", state, 4, 5, 6) == ([6] if above else [5, 6])
    with pytest.raises(ConfigurationError, match="made anew"):
        taken("second", state, 7)
    assert taken("first", state, 6, 7) == [7]
