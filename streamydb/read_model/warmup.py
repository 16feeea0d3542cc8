"""Compile all that follows and reads, in one process, so that others find it in the cache.

python -m streamydb.read_model.warmup
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import UNSET, Raw

from streamydb.kafka.changes import FetchedRecords, TopicState
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.librdkafka import compile_kernels
from streamydb.kafka.reader import Span
from streamydb.read_model.follower import Follower
from streamydb.read_model.model import ReadModel
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.records.ranges import ScanRange
from streamydb.settings import Settings

_DATABASE: Final = "warm-up"
_SEQS: Final = 12
_BYTES_MAX: Final = 1_000


class _SampleChanges:
    """A topic in memory: a few changes a fetch, some with an end, all of them repeated."""

    def __init__(self) -> None:
        self._records: list[OneRecord] = []
        before = b"", b""
        for seq in range(1, _SEQS + 1):
            source = ChangeOrigin("streamydb", _DATABASE, 0, seq, seq)
            change = Change(
                "u", Raw(b"1"), Raw(b'"two"'), seq, source,
                ChangeTransaction(f"t{seq}", 1, 1), 9 * seq if seq % 2 else UNSET,
            )  # fmt: skip
            key, value = b"key/%d" % (seq % 5), encode_change(change)
            self._add(key, value)
            if seq > 1:
                self._add(*before)
            before = key, value
            if seq % 3 == 0:
                self._add(None, encode_resolved(Resolved(seq, seq, {"0": seq})))

    def _add(self, key: bytes | None, value: bytes) -> None:
        self._records.append(OneRecord(0, len(self._records), key, value))

    def describe(self) -> TopicState:
        return TopicState(_DATABASE, compacted=False, spans={0: Span(0, len(self._records))})

    def assign(self, positions: Mapping[int, int]) -> None:
        del self._records[: positions[0]]

    def fetch(self, timeout_s: float) -> FetchedRecords:  # noqa: ARG002 - the port
        records, self._records = self._records[:3], self._records[3:]
        return FetchedRecords(RecordColumns.of(records), {})

    def close(self) -> None:
        self._records.clear()


def warm_up() -> None:
    compile_kernels()
    settings = Settings(database=_DATABASE, bootstrap="127.0.0.1:1")
    with TemporaryDirectory(prefix="streamydb-warm-up-") as home:
        folder = Path(home) / "read-model"
        with ReadModel.open(folder, _DATABASE, write=True) as model:
            follower = Follower(
                model, settings, retention_s=0, retention_seqs=1, source=_SampleChanges()
            )
            while model.latest().seq < _SEQS:
                follower.step(0)
            with model.snapshot() as snapshot:
                keys = ["key/1", "key/2", "absent"]
                snapshot.get(keys[0])
                snapshot.get_many(keys)
                snapshot.get_json(keys, _BYTES_MAX)
                snapshot.scan(ScanRange("key/"))
                for at_once in (True, False):
                    snapshot.scan_json(limit=9, bytes_max=_BYTES_MAX, at_once=at_once)
                snapshot.history(keys[0])
                snapshot.first_end()


if __name__ == "__main__":
    warm_up()
