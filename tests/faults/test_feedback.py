"""Feedback that is doubled, shuffled, of a newer format, or lost; two databases on one log."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from streamydb.frames.encoding import pack, unpack
from streamydb.frames.messages import Role
from streamydb.frames.protocol import FORMAT
from streamydb.frames.readers import FEEDBACK
from streamydb.kafka import TopicNames, create, delete
from streamydb.kafka.clients import administrator
from streamydb.pipeline.standby.handover import hand_over
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import fails, load, progressed, records_of, resolved

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.long]


def is_ready(db: Database) -> bool:
    """Whether a pipeline follows and could take over."""
    return db.status().role == "following" and bool(db.status().ready)


def leads(db: Database) -> bool:
    """Whether a pipeline leads."""
    return db.status().role == "leading"


def append(db: Database, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Append records as they are."""
    producer = Producer({**db.settings.client_config(), "enable.idempotence": "true"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.fault(
    11, "all feedback so far appended again in random order, under load", "no-ops; no G0; equal to "
    "the serial replay",
)  # fmt: skip
def test_feedback_is_doubled_and_shuffled(
    tmp_path: Path, grouping: str, injected: Callable[..., None]
) -> None:
    rng = random.Random(1)
    with Database(tmp_path, shards=2, options=["--grouping", grouping]) as db:
        topic = TopicNames(db.name).feedback
        db.load(transfers(100, accounts=200))
        resolved(db, 50)
        for number in range(5):
            db.load(transfers(30, accounts=200, seed=10 + number))
            for shard in range(2):
                found = records_of(db, topic, shard)
                rng.shuffle(found)
                append(db, topic, found, shard)
                injected(len(found))
        db.kill_pipeline()
        db.start_pipeline()
        db.load(transfers(50, accounts=200, seed=99))
        assert db.assert_serial().ok


@pytest.mark.fault(
    11, "all feedback, roles of a standby among it, appended again in reverse after hand-overs",
    "the leader reminds its shards within seconds; equal to the serial replay",
)  # fmt: skip
def test_old_roles_come_again(tmp_path: Path, injected: Callable[..., None]) -> None:
    with Database(tmp_path) as db, db.beside("standby") as other, load(db, 1):
        for follower in (other, db):
            wait_for(partial(is_ready, follower), "readiness")
            hand_over(db.settings.client_config(), db.name, "", 60)
            wait_for(partial(leads, follower), "the lead")
        found = records_of(db, TopicNames(db.name).feedback)
        roles = [told for told in FEEDBACK.each(found) if isinstance(told, Role)]
        assert any(not role.leads for role in roles)
        append(db, TopicNames(db.name).feedback, found[::-1])
        injected(len(found))
        progressed(db, 500)
        assert db.assert_serial().ok


@pytest.mark.fault(
    11, "delete_records on feedback before it was read", "stops loudly, nothing skipped; rebuilt "
    "from the log: equal to the serial replay",
)  # fmt: skip
def test_lost_feedback_is_detected(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        names = TopicNames(db.name)
        with load(db, 1):
            progressed(db, 200)
            db.kill_pipeline()  # as a rule before it has read the feedback of its last plan
        append(db, names.feedback, [b"\x00"])  # so that there is something to lose in any case
        admin = administrator({"bootstrap.servers": db.broker.bootstrap})
        for future in admin.delete_records([TopicPartition(names.feedback, 0, -1)]).values():
            future.result(30)
        said = fails(db)
        assert "what lies between was deleted" in said
        db.place.checkpoint.rename(tmp_path / "old")
        db.start_pipeline()
        db.load(transfers(50, seed=2))
        assert db.assert_serial().ok


@pytest.mark.fault(
    21, "feedback of a newer format appended while it runs, then a checkpoint of a newer format",
    "both refused loudly; rebuilt from the log: equal to the serial replay",
)  # fmt: skip
def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        topic = TopicNames(db.name).feedback
        db.load(transfers(100))
        assert db.assert_serial().ok
        head, columns = unpack(records_of(db, topic)[-1])
        newer = {**head, "format": FORMAT + 1}
        append(db, topic, [pack(columns, **{**newer, "incarnation": "of another"})])
        db.load(transfers(50, seed=2))
        assert db.assert_serial().ok
        append(db, topic, [pack(columns, **newer)])
        wait_for(lambda: db.status().state == "failed", "the refusal", 100)
        assert f"a block has format {FORMAT + 1}" in (db.status().error or "")
        db.kill_pipeline()
        record = db.place.checkpoint / "streamydb.json"
        kept = json.loads(record.read_text())
        record.write_text(json.dumps({**kept, "format": kept["format"] + 1}))
        assert "was written with format" in fails(db)
        db.place.checkpoint.rename(tmp_path / "old")
        db.start_pipeline()
        db.load(transfers(50, seed=3))
        assert db.assert_serial().ok


@pytest.mark.fault(
    30, "a second database of the same name: with other shards, then a pipeline of its own home "
    "beside the first",
    "refused; the other one follows in silence: equal to the serial replay",
)  # fmt: skip
def test_two_databases_with_one_name(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        db.load(transfers(200))
        assert db.assert_serial().ok
        other = Database(tmp_path / "other", shards=2)
        other.broker = db.broker
        (tmp_path / "other").mkdir()
        assert "it has 1 partitions, the database has 2 shards" in fails(other)
        other.shards = 1
        try:
            other.start_pipeline()
            with load(db, 5):
                progressed(db, 200)
                progressed(other, 200)
            assert db.assert_serial().results.duplicates == 0
            assert (db.status().role, other.status().role) == ("leading", "following")
        finally:
            other.kill_pipeline()
        assert db.status().state == "running"


@pytest.mark.fault(
    30, "the topics deleted and made anew under an old checkpoint", "the start refuses; with a new "
    "checkpoint: equal to the serial replay",
)  # fmt: skip
def test_topics_made_anew_are_not_taken_for_the_old_ones(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        db.load(transfers(200))
        assert db.assert_serial().ok
        db.kill_pipeline()
        delete(db.settings.client_config(), db.name)
        create(db.settings.client_config(), db.name)
        db.load(transfers(400, seed=2))
        assert "another log" in fails(db)
        db.place.checkpoint.rename(tmp_path / "old")
        db.start_pipeline()
        assert db.assert_serial().ok
