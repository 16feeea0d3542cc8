"""Records of some kilobytes that unpack to hundreds of megabytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from streamydb.kafka import TopicNames, check, mend
from streamydb.kafka.admin import change_settings
from streamydb.kafka.clients import BULK, administrator, appender
from streamydb.kafka.topic_plans import COMPRESSION, UNPACKED
from streamydb.testing.database import Database, wait_for
from tests.support.faulty import results_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.long]

LARGE_BYTES = 300_000_000


def append(db: Database, value: bytes, codec: str) -> None:
    """Append one record as a foreign producer does, packed with a codec."""
    kind = {**BULK, "compression.type": codec, "message.max.bytes": 1_000_000_000}
    kind["queue.buffering.max.kbytes"] = 2_097_151
    producer = appender(db.settings.client_config(), kind)
    refused: list[object] = []
    topic = TopicNames(db.name).transactions
    producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error))
    producer.flush(120)
    assert refused == [None]


@pytest.mark.fault(
    49, "a record of gzip of 0.3 MB that unpacks to 300 MB, in a log of an earlier release",
    "the pipeline ends once and names it; the next start rejects it; equal to the serial replay",
)  # fmt: skip
def test_a_record_that_unpacks_to_hundreds_of_megabytes(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        connection = db.settings.client_config()
        log = TopicNames(db.name).transactions
        change_settings(administrator(connection), {log: {COMPRESSION: "producer"}})
        db.load([{"id": "before", "updates": [{"op": "put", "key": "a", "value": 1}]}])
        value = b'{"id":"large","updates":[{"op":"put","key":"b","value":"'
        value += b"v" * LARGE_BYTES + b'"}]}'
        assert len(gzip.compress(value, 1)) < 2_000_000
        append(db, value, "gzip")
        wait_for(lambda: db.status().state == "failed", "the end of the JVM")
        error = db.status().error or ""
        assert f"partition 0, offset 1 of {log} has {len(value):,} bytes unpacked" in error
        assert "Start the pipeline again" in error
        db.load([{"id": "after", "updates": [{"op": "put", "key": "a", "value": 2}]}])
        db.start_pipeline()
        wait_for(lambda: (db.status().resolved or 0) >= 3, "the verdicts")
        codes = {result["id"]: result.get("code") for result in results_of(db)}
        assert codes == {"before": None, "large": "transaction-too-large", "after": None}
        db.assert_serial()
        (problem,) = [each for each in check(connection, db.name) if each.topic == log]
        assert f"--add-config {COMPRESSION}={UNPACKED}" in problem.fix
        mend(connection, [problem])
        assert not [each for each in check(connection, db.name) if each.topic == log]
