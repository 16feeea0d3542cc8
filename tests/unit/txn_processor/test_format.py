"""Formatting: the kernels' bytes are those that the records' own encoders write."""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from streamydb import records as r
from streamydb.frames import program as p
from streamydb.frames.json_writer import json_strings
from streamydb.frames.table import ChildRows, Ragged
from streamydb.frames.value_rows import ChangeRows, ReadValues, ResultRows
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.records.change import ChangeOrigin, ChangeTransaction
from streamydb.txn_processor.format import format_changes, format_results

TEXTS = ["", "a", 'say "hi"', "back\\slash", "\b\t\n\f\r", "\x00\x1f\x7f", "h\u00e9", "\U0001f600"]
NUMBERS = [0, 7, 10, 99, -1, -10, INTEGER_MAX, INTEGER_MIN]
VALUES: list[Any] = [None, *NUMBERS, *TEXTS, 1.5, True, [1, {"a": None}]]


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def test_strings_have_the_escapes_of_the_encoder() -> None:
    every = [*TEXTS, *map(chr, range(256)), "".join(map(chr, range(256)))]
    found = json_strings(Ragged.of([text.encode() for text in every]))
    assert found.tolist() == [encoded(text) for text in every]


def tagged(values: list[Any]) -> tuple[Any, Any, Ragged]:
    """Values as columns: tags, numbers, texts."""
    numbers = [v if type(v) is int else 0 for v in values]
    tags = [p.ABSENT if v is None else p.INT if type(v) is int else p.OPAQUE for v in values]
    texts = [encoded(v) if t == p.OPAQUE else b"" for v, t in zip(values, tags, strict=True)]
    return np.array(tags, np.uint8), np.array(numbers, np.int64), Ragged.of(texts)


def places(rng: random.Random, n: int) -> tuple[Any, Any, Any, Any]:
    """Draw seqs, times, partitions and offsets."""
    return (
        np.array(rng.choices(NUMBERS, k=n), np.int64),
        np.array(rng.choices(NUMBERS, k=n), np.int64),
        np.array(rng.choices(range(12), k=n), np.int32),
        np.array(rng.choices(NUMBERS, k=n), np.int64),
    )


@pytest.mark.parametrize("seed", range(5))
def test_results_are_what_the_encoder_writes(seed: int) -> None:
    rng = random.Random(seed)
    n = 40
    cols, ids = places(rng, n), [rng.choice(TEXTS[1:]) for _ in range(n)]
    reads = [dict(zip(rng.sample(TEXTS, k), rng.choices(VALUES, k=k), strict=True))
             for k in rng.choices(range(4), k=n)]  # fmt: skip
    special = [b'{"made":"elsewhere"}' if rng.random() < 0.2 else b"" for _ in range(n)]
    tags, numbers, texts = tagged([value for each in reads for value in each.values()])
    keys = Ragged.of([key.encode() for each in reads for key in each])
    child = ReadValues(tags, numbers, keys, texts)
    names = Ragged.of([id_.encode() for id_ in ids])
    counts = np.array([len(each) for each in reads])
    rows = ResultRows(*cols, names, Ragged.of(special), ChildRows(counts, child))
    for i, found in enumerate(format_results(rows).tolist()):
        seq, ts, part, off = (int(column[i]) for column in cols)
        shown = {key: msgspec.Raw(encoded(value)) for key, value in reads[i].items()}
        expected = r.Result(
            id=ids[i],
            seq=seq,
            ts_ms=ts,
            status="committed",
            reads=shown,
            failed=[],
            code=None,
            source=r.Source(part, off),
        )
        assert found == (special[i] or encoded(expected))


@pytest.mark.parametrize("seed", range(5))
def test_changes_are_what_the_encoder_writes(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [pair for pair in ((a, b) for a in VALUES for b in VALUES) if pair != (None, None)]
    rng.shuffle(pairs)
    n = len(pairs)
    cols, ids = places(rng, n), [rng.choice(TEXTS[1:]) for _ in range(n)]
    indexes = np.array(rng.choices([1, 2, 1_000], k=n), np.int32)
    before_tag, before_number, before = tagged([pair[0] for pair in pairs])
    after_tag, after_number, after = tagged([pair[1] for pair in pairs])
    ends = [new is not None and rng.random() < 0.3 for _, new in pairs]
    after_tag[ends], after_number[ends] = p.EXPIRING, 1_000
    after = Ragged.of([encoded(pairs[i][1]) if end else after[i] for i, end in enumerate(ends)])
    names = Ragged.of([b"key/%d" % i for i in range(n)])
    rows = ChangeRows(
        *cols,
        indexes,
        before_tag,
        before_number,
        after_tag,
        after_number,
        Ragged.of([i.encode() for i in ids]),
        names,
        before,
        after,
    )
    keys, values = format_changes("bank", rows)
    expected: list[tuple[bytes, bytes]] = []
    for i, (old, new) in enumerate(pairs):
        op: Literal["c", "u", "d"] = "c" if old is None else "d" if new is None else "u"
        seq, ts, part, off = (int(column[i]) for column in cols)
        index = int(indexes[i])
        change = r.Change(
            op=op,
            before=msgspec.Raw(encoded(old)),
            after=msgspec.Raw(encoded(new)),
            ts_ms=ts,
            source=ChangeOrigin("streamydb", "bank", part, off, seq),
            transaction=ChangeTransaction(ids[i], index, index),
            expires_ms=1_000 if ends[i] else msgspec.UNSET,
        )
        expected.append((b"key/%d" % i, encoded(change)))
        if new is None:
            expected.append((b"key/%d" % i, b""))
    assert list(zip(keys.tolist(), values.tolist(), strict=True)) == expected
