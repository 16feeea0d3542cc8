"""Rows of DataFrames over random records: the same facts as the records have, and no row lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from streamydb.errors import REJECTED_CODES
from streamydb.spark import payloads, rows
from streamydb.verify.oracle.core import Oracle
from tests.support.seeds import seeds


def transaction(dice: random.Random) -> str:
    """One, or what is almost one."""
    key = dice.choice(["a", "b", "é\n"])
    update: dict[str, Any] = {"op": "put", "key": key, "value": dice.choice([1, "x", [None]])}
    if dice.random() < 0.3:
        update = {"op": dice.choice(["delete", "none"]), "key": key}
    made: dict[str, Any] = {"id": f"t{dice.randrange(12)}", "updates": [update], "reads": [key]}
    if dice.random() < 0.2:
        made["asserts"] = {key: dice.choice([1, None])}
    if dice.random() < 0.1:
        made[dice.choice(["id", "updates", "x"])] = dice.choice([1, "", None])
    text = json.dumps(made)
    return text if dice.random() < 0.9 else text[: dice.randrange(len(text))]


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_rows_say_what_the_records_say(seed: int) -> None:
    dice = random.Random(f"rows {seed}")
    oracle, written = Oracle("bank"), list[tuple[str, bytes | None, bytes | None]]()
    sent = [transaction(dice) for _ in range(30)]
    codes = []
    for offset, text in enumerate(sent):
        outputs = oracle.apply(text.encode(), 0, offset, 7 * offset)
        written += [(each.topic, each.key, each.value) for each in outputs]
        results = [json.loads(each.value or b"") for each in outputs if each.topic == "results"]
        codes += [each["code"] if each["status"] == "rejected" else None for each in results]
    values = [value or b"" for topic, _, value in written if topic == "results"]
    (found,) = rows.results([pa.record_batch([pa.array(values, pa.binary())], names=["value"])])
    for row, value in zip(found.to_pylist(), map(json.loads, values), strict=True):
        again = value.get("duplicate")
        own, place = again or value, again or value["source"]
        assert (row["id"], row["status"], row["code"]) == (
            value["id"], value["status"], value.get("code"),
        )  # fmt: skip
        assert (row["seq"], row["ts_ms"]) == (own["seq"], own["ts_ms"])
        assert (row["partition"], row["offset"]) == (place["partition"], place["offset"])
        assert row["duplicate_of"] == (value["seq"] if again else None)
        assert json.loads(row["reads"]) == value["reads"]
        assert json.loads(row["ranges"]) == value.get("ranges", [])
    changes = [(key, value) for topic, key, value in written if topic == "changes"]
    columns = [pa.array([0] * len(changes)), pa.array(range(len(changes)))]
    columns += [pa.array([pair[at] for pair in changes], pa.binary()) for at in (0, 1)]
    names = ["partition", "offset", "key", "value"]
    (events,) = rows.events([pa.record_batch(columns, names=names)])
    kept = [(key, json.loads(value)) for key, value in changes if value is not None]
    for row, (key, told) in zip(events.to_pylist(), kept, strict=True):
        assert (row["key"], row["seq"]) == ((key or b"").decode(), told["source"]["seq"])
        assert (row["op"], row["ts_ms"]) == (told["op"], told["ts_ms"])
        assert row["index"] == told["transaction"]["total_order"]
        assert row["expires_ms"] == told.get("expires_ms", 0)
        for name in ("before", "after"):
            assert json.loads(row[name] or "null") == told[name]
    routed = [payloads.fault_of(text) for text in sent]
    of_record = {None, *REJECTED_CODES} - {"id-reused"}
    assert [code for code in routed if code not in of_record] == []
    for code, rejected in zip(routed, codes, strict=True):
        assert code == rejected or rejected == "id-reused"
    ids = [f"row {number}" for number in range(len(sent))]
    given = pa.record_batch([pa.array(ids), pa.array(sent), pa.array(ids)],
                            names=["id", "payload", "key"])  # fmt: skip
    (made,) = payloads.router("log", "bad")([given])
    for row, text, name, code in zip(made.to_pylist(), sent, ids, routed, strict=True):
        assert row["key"] == name.encode()
        if code is None:
            assert (row["topic"], row["value"]) == ("log", text.encode())
        else:
            aside = json.loads(row["value"])
            assert (row["topic"], aside["code"], aside["payload"]) == ("bad", code, text)
