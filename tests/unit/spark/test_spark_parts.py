"""What runs in Spark's Python workers, without Spark: payloads, rows, repetitions, digests."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.backup.snapshots import RowsDigest, SnapshotError
from streamydb.errors import RecordError
from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX
from streamydb.records import Change, decode_change, encode_change, encode_resolved
from streamydb.records import Resolved as ResolvedRecord
from streamydb.records.expiry import EXPIRY_ID, removal_number
from streamydb.spark import payloads, rows
from streamydb.spark.rows import SeenRecords
from streamydb.spark.snapshot import moment
from streamydb.verify.oracle.core import Oracle
from tests.support.read_model import change
from tests.support.strange import LATER, STRANGE

GOOD = '{"id":"a","updates":[{"op":"put","key":"k","value":1}]}'


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(c) for c in columns.values()], names=list(columns))


def test_rows_become_records_or_go_aside() -> None:
    texts = [GOOD, '{"id":"b","x":1}', None]
    given = batch(id=["a", "b", None], payload=texts, key=["k", "k", None])
    (made,) = payloads.router("db.transactions", "bad")([given])
    good, bad, empty = made.to_pylist()
    assert good == {"key": b"k", "value": GOOD.encode(), "topic": "db.transactions"}
    assert (bad["key"], bad["topic"], empty["key"]) == (b"b", "bad", None)
    told = msgspec.json.decode(bad["value"])
    assert (told["id"], told["code"], told["payload"]) == (
        "b", "invalid-transaction", '{"id":"b","x":1}'
    )  # fmt: skip
    assert told["meaning"].endswith(".")
    assert msgspec.json.decode(empty["value"])["code"] == "null-value"
    (none,) = payloads.router("t", None)([batch(id=[], payload=[], key=[])])
    assert none.num_rows == 0


def test_a_bad_row_is_an_error_unless_it_may_go_aside() -> None:
    with pytest.raises(payloads.BadRowError, match=r"'b'.*invalid-transaction.*rejected_topic"):
        list(payloads.router("t", None)([batch(id=["b"], payload=['{"id":"b","x":1}'], key=["k"])]))
    (checked,) = payloads.check([batch(id=["a", "b"], payload=[GOOD, "{"])])
    assert checked.column("code").to_pylist() == [None, "invalid-json"]


def test_markers_and_huge_rows_are_no_transactions() -> None:
    assert payloads.fault_of('{"marker":1,"partitions":1}') is not None
    huge = '{"id":"a","updates":[{"op":"put","key":"k","value":"' + "x" * 900_000 + '"}]}'
    assert payloads.fault_of(huge) == "transaction-too-large"
    (made,) = payloads.router("t", "bad")([batch(id=["a"], payload=[huge], key=["k"])])
    told = msgspec.json.decode(made.to_pylist()[0]["value"])
    assert len(told["payload"]) == DEAD_LETTER_PAYLOAD_BYTES_MAX


def test_a_row_goes_aside_whatever_its_id_is() -> None:
    ids = ["i" * 2_000_000, "\1" * 100_000]
    given = batch(id=ids, payload=["{"] * 2, key=["k"] * 2)
    (made,) = payloads.router("t", "bad")([given])
    for record in made.to_pylist():
        assert record["topic"] == "bad"
        assert len(record["key"]) + len(record["value"]) < 1_000_000
    with pytest.raises(payloads.BadRowError) as told:
        list(payloads.router("t", None)([given]))
    assert len(str(told.value)) < 1_000


def test_texts_of_spark_need_not_be_utf8() -> None:
    odd = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    given = pa.record_batch([odd, pa.array([GOOD]), odd], names=["id", "payload", "key"])
    (made,) = payloads.router("log", None)([given])
    (record,) = made.to_pylist()
    assert record == {"key": b"\xff\xfe", "value": GOOD.encode(), "topic": "log"}
    bad = pa.record_batch([odd, pa.array(["{"]), odd], names=["id", "payload", "key"])
    (made,) = payloads.router("log", "bad")([bad])
    assert msgspec.json.decode(made.to_pylist()[0]["value"])["id"] == "\ufffd\ufffd"
    (checked,) = payloads.check([bad])
    assert checked.column("code").to_pylist() == ["invalid-json"]


def removal() -> bytes:
    """The change that tells that the key k has ended."""
    made = decode_change(change(8, None))
    assert isinstance(made, Change)
    made.transaction.id, made.transaction.total_order = EXPIRY_ID, removal_number(b"k")
    return encode_change(made)


def test_changes_become_columns() -> None:
    resolved = encode_resolved(ResolvedRecord(7, 70, {"0": 8}))
    given = batch(
        partition=[0, 0, 1, 1, 1], offset=[0, 1, 0, 1, 2],
        key=["é".encode(), b"k", b"k", None, b"k"],
        value=[change(3, '{"a":1e16}'), change(4, None), None, resolved, removal()],
    )  # fmt: skip
    (made,) = rows.events([given])
    first, second, third, last = made.to_pylist()
    assert [row["expires_ms"] for row in (first, second, third)] == [0, 0, 0]
    assert (last["op"], last["index"]) == ("d", removal_number(b"k"))
    assert (first["key"], first["seq"], first["index"], first["after"]) == ("é", 3, 1, '{"a":1e16}')
    assert (second["op"], second["before"], second["after"]) == ("d", None, None)
    assert (third["resolved"], third["seq"], third["offsets"]) == (True, 7, '{"0":8}')
    for key, value in ((b"k", LATER[0]), (b"\xff", change(3, "1"))):
        with pytest.raises(RecordError, match="partition 2, offset 5"):
            list(rows.events([batch(partition=[2], offset=[5], key=[key], value=[value])]))
    count = len(STRANGE)
    others = batch(
        partition=[2] * count, offset=[*range(count)], key=[None] * count, value=[*STRANGE]
    )
    assert [made.num_rows for made in rows.events([others])] == [0]


def test_results_become_columns() -> None:
    oracle = Oracle("bank")
    outputs = [
        record
        for offset in range(2)  # the same record twice
        for record in oracle.apply(GOOD.encode(), 0, offset, 1000 + offset)
    ]
    values = [record.value for record in outputs if record.topic == "results"]
    (made,) = rows.results([batch(value=values)])
    first, second = made.to_pylist()
    assert (first["id"], first["seq"], first["status"]) == ("a", 1, "committed")
    assert (first["reads"], first["ranges"]) == ("{}", "[]")
    assert (first["duplicate_of"], second["duplicate_of"]) == (None, 1)
    assert (second["seq"], second["offset"], second["ts_ms"]) == (2, 1, 1001)


def test_digests_of_parts_add_up() -> None:
    whole = RowsDigest()
    for n in range(10):
        whole.add(b"k%d" % n, b"1", n, n, n or None)
    parts = [
        batch(
            key=[f"k{n}" for n in part],
            value=["1"] * 5,
            version=list(part),
            ts_ms=list(part),
            expires_ms=[n or None for n in part],
        )
        for part in (range(5), range(5, 10))
    ]
    found = [next(rows.digests([part])).to_pylist()[0] for part in parts]
    merged = RowsDigest().merge(
        RowsDigest(row["rows"], int.from_bytes(row["total"], "little")) for row in found
    )
    assert (merged.rows, merged.hex()) == (10, whole.hex())
    assert [b.num_rows for b in rows.digests([])] == [1]


@given(st.integers(0, 10_000))
def test_every_change_is_fresh_once_whatever_is_repeated(seed: int) -> None:
    """A pipeline that is killed again and again: it repeats what its last batches wrote."""
    rng = random.Random(seed)
    log: list[tuple[int, int, str | None, bool]] = []
    seq = 0
    for _ in range(rng.randint(1, 8)):
        seqs = range(seq + 1, seq + rng.randint(1, 6))
        plan = [(n, i, key, False) for n in seqs for i in (1, 2) for key in ("a", "b")]
        seq = max([seq, *seqs])
        rng.shuffle(plan)  # parallel tasks
        cut = rng.randint(0, len(plan))
        if rng.random() < 0.5:
            log += plan[:cut]  # the attempt that was killed
        log += [*plan, (seq, 0, None, True)]
        if rng.random() < 0.3:
            log += log[rng.randint(0, len(log) - 1) :]  # rebuilt from an older checkpoint
    expected = {(n, i, key) for n, i, key, resolved in log if not resolved}
    seen, given_once, at = SeenRecords(), [], 0
    while at < len(log):
        part = log[at : at + rng.randint(1, 10)]
        at += len(part)
        mask = seen.fresh(part)
        given_once += [event[:3] for event, fresh in zip(part, mask, strict=True) if fresh]
        seen = SeenRecords(seen.resolved, seen.pack())
    assert Counter(given_once) == Counter(expected)
    assert not seen.above or min(n for n, _, _ in seen.above) > seen.resolved


def test_moments() -> None:
    assert moment(None) is moment("newest") is None
    assert moment("17") == 17
    found = moment("2026-01-31T12:00:00+01:00")
    assert found is not None
    assert not isinstance(found, int)
    assert found.timestamp() == 1769857200
    for text in ("", "-1", "soon", "2026-01-31"):
        with pytest.raises(SnapshotError, match="--at"):
            moment(text)
