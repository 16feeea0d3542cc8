"""Between the objects of `grouping=single` and the tables of values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamydb.frames import program as p
from streamydb.frames.json_tokens import parse_ints
from streamydb.frames.lock_messages import Released
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import ValueRows, WrittenValues
from streamydb.key_processor.locking.messages import locked_name, unpacked
from streamydb.records.expiry import Expiring


def canonical_values(found: ValueRows) -> Iterator[tuple[bytes | None, int]]:
    """Canonical values and versions."""
    columns = found.tag.tolist(), found.number.tolist(), found.version.tolist()
    rows = zip(*columns, found.text.tolist(), strict=True)
    for tag, number, version, text in rows:
        if tag == p.EXPIRING:
            yield Expiring(text, number), version
        else:
            yield None if tag == p.ABSENT else b"%d" % number if tag == p.INT else text, version


def writes_table(writes: list[Released]) -> WrittenValues:
    """Return writes as a table."""
    values = [unpacked(row.value)[0] for row in writes]
    texts = Ragged.of([value or b"" for value in values])
    tags, numbers = parse_ints(texts.data, texts.offsets)
    for row, value in enumerate(values):
        if isinstance(value, Expiring):
            tags[row], numbers[row] = p.EXPIRING, value.expires_ms
    absent = tags == p.ABSENT
    version = np.array([row.seq for row in writes], np.int64)
    opaque = [b"" if tag == p.INT else text for tag, text in zip(tags, texts.tolist(), strict=True)]
    keys = Ragged.of([locked_name(row.lock) for row in writes])
    return WrittenValues(tags, numbers, np.where(absent, 0, version), keys, Ragged.of(opaque))
