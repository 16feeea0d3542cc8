"""Between the objects of `grouping=single` and the tables of values and digests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamydb.columns import program as p
from streamydb.columns.table import Array, Columns, Ragged
from streamydb.key_processor.locking.messages import Released, locked_name, unpacked
from streamydb.records.expiry import Expiring
from streamydb.txn_processor.tokens import parse_ints

__all__ = ["canonical_values", "verdicts_table", "writes_table"]


def canonical_values(found: Columns) -> Iterator[tuple[bytes | None, int]]:
    """Canonical values and versions."""
    columns = (found.cols[name].tolist() for name in ("tag", "number", "version"))
    rows = zip(*columns, found.texts["text"].tolist(), strict=True)
    for tag, number, version, text in rows:
        if tag == p.EXPIRING:
            yield Expiring(text, number), version
        else:
            yield None if tag == p.ABSENT else b"%d" % number if tag == p.INT else text, version


def verdicts_table(results: list[tuple[int, bytes]]) -> Columns:
    """Results by seq, as `ShardDigests` takes them."""
    seqs = np.array([seq for seq, _ in results], np.int64)
    return Columns({"seq": seqs}, {"result": Ragged.of([result for _, result in results])})


def writes_table(writes: list[Released]) -> Columns:
    """Writes as `ShardValues.apply` takes them."""
    values = [unpacked(row.value)[0] for row in writes]
    texts = Ragged.of([value or b"" for value in values])
    tags, numbers = parse_ints(texts.data, texts.offsets)
    for row, value in enumerate(values):
        if isinstance(value, Expiring):
            tags[row], numbers[row] = p.EXPIRING, value.expires_ms
    absent = tags == p.ABSENT
    version = np.array([row.seq for row in writes], np.int64)
    opaque = [b"" if tag == p.INT else text for tag, text in zip(tags, texts.tolist(), strict=True)]
    cols: dict[str, Array] = {
        "tag": tags, "number": numbers, "version": np.where(absent, 0, version)
    }
    keys = Ragged.of([locked_name(row.lock) for row in writes])
    return Columns(cols, {"key": keys, "text": Ragged.of(opaque)})
