"""Topics on a real broker: made, checked, mended, grown and deleted."""

from __future__ import annotations

from json import loads

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from msgspec.structs import replace

from streamydb.kafka import (
    FoundingFacts,
    TopicNames,
    TopicsError,
    add_shared,
    check,
    create,
    delete,
    describe,
    grow,
    is_synced,
    log_id,
    mend,
    recall,
    record,
    set_sync,
)
from streamydb.kafka.admin import change_settings, describe_topics
from streamydb.kafka.clients import MESSAGES, administrator, appender
from streamydb.kafka.creation import changes_begun, existing
from streamydb.records.begins import Begins
from streamydb.testing.database import wait_for

Client = dict[str, str]


@pytest.fixture
def client(bootstrap: str) -> Client:
    return {"bootstrap.servers": bootstrap}


def administration(client: Client) -> AdminClient:
    """Return a client that must outlive its requests."""
    return AdminClient({**client})


def alter(client: Client, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic."""
    change_settings(administrator(client), {topic: {name: value}})


def test_created_topics_are_as_the_contract_says(client: Client, database: str) -> None:
    names = create(client, database, partitions=3, shards=2)
    topics = describe(client, database)
    assert list(topics) == list(names.all())
    assert [topic.partitions for topic in topics.values()] == [3, 2, 4, 2, 1]
    log = topics[names.transactions]
    assert log.settings["message.timestamp.type"] == "LogAppendTime"
    assert log.settings["cleanup.policy"] == "delete"
    assert log.settings["retention.ms"] == "-1"
    assert log.settings["max.message.bytes"] == "1048588"
    assert (log.beginnings, log.ends) == ((0, 0, 0), (0, 0, 0))
    assert check(client, database, shards=2) == []


def test_creating_again_changes_nothing(client: Client, database: str) -> None:
    create(client, database, partitions=2)
    before = describe(client, database)
    create(client, database, partitions=2)
    assert describe(client, database) == before


def test_an_appender_knows_its_topic_before_the_first_record(client: Client, database: str) -> None:
    """Otherwise that record waits until librdkafka looks for new topics, once a second."""
    create(client, database)
    topic, known = TopicNames(database).transactions, set[str]()

    def take(told: str) -> None:
        known.update(name for name, about in loads(told)["topics"].items() if about["partitions"])

    kind = {**MESSAGES, "statistics.interval.ms": 10, "stats_cb": take}
    producer = appender(client, kind, topic)  # type: ignore[arg-type]
    wait_for(lambda: producer.poll(0.05) >= 0 and topic in known, "the topic's partitions")


def test_missing_topics_are_added(client: Client, database: str) -> None:
    names = create(client, database)
    admin = administration(client)
    admin.delete_topics([names.changes], operation_timeout=30)[names.changes].result(30)
    wait_for(
        lambda: [problem.topic for problem in check(client, database)] == [names.changes],
        "a broker to know what was deleted",
    )
    create(client, database)
    assert check(client, database) == []


def test_topics_with_other_settings_are_refused(client: Client, database: str) -> None:
    names = create(client, database, partitions=2)
    alter(client, names.transactions, "cleanup.policy", "compact")
    with pytest.raises(TopicsError) as caught:
        create(client, database, partitions=3, shards=2)
    text = str(caught.value)
    assert f"{names.transactions}: partitions: 2, asked for 3" in text
    assert f"{names.transactions}: cleanup.policy: compact, asked for delete" in text
    assert f"{names.feedback}: partitions: 1, asked for 2" in text
    assert describe(client, database)[names.results].partitions == 1


def test_a_topic_that_somebody_made_with_defaults_is_refused(client: Client, database: str) -> None:
    name = TopicNames(database).transactions
    admin = administration(client)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    wait_for(lambda: name in describe(client, database), "a broker to know what was created")
    with pytest.raises(TopicsError, match=r"message\.timestamp\.type: CreateTime"):
        create(client, database)
    assert list(describe(client, database)) == [name], "nothing else was created"


def test_missing_database(client: Client, database: str) -> None:
    problems = check(client, database)
    assert len(problems) == 5
    assert problems[0].fix == f"streamydb create --database {database}"


@pytest.mark.fault(18, "each setting changed on a real topic", "named with the exact fix")
@pytest.mark.parametrize(
    ("topic", "name", "wrong", "right", "severity"),
    [
        ("transactions", "message.timestamp.type", "CreateTime", "LogAppendTime", "error"),
        ("transactions", "cleanup.policy", "compact", "delete", "error"),
        ("transactions", "cleanup.policy", "compact,delete", "delete", "error"),
        ("transactions", "max.message.bytes", "1000", "1048588", "error"),
        ("transactions", "min.insync.replicas", "2", "1", "error"),
        ("transactions", "unclean.leader.election.enable", "true", "false", "error"),
        ("transactions", "retention.ms", "1000", "-1", "warning"),
        ("transactions", "retention.bytes", "1000000", "-1", "warning"),
        ("changes", "cleanup.policy", "compact", "delete", "error"),
        ("changes", "retention.ms", "1000", "-1", "warning"),
        ("feedback", "max.message.bytes", "1000", "1048588", "error"),
        ("feedback", "retention.ms", "86400000", "-1", "warning"),
        ("results", "cleanup.policy", "compact", "delete", "error"),
    ],
)
def test_each_wrong_setting_is_named_with_its_fix(
    client: Client, database: str, topic: str, name: str, wrong: str, right: str, severity: str
) -> None:
    create(client, database)
    full = f"{database}.{topic}"
    alter(client, full, name, wrong)
    problems = check(client, database)
    (problem,) = problems
    assert problem.topic == full
    assert problem.severity == severity
    assert problem.what.startswith(f"{name} is ")
    assert problem.fix == (
        f"kafka-configs.sh --bootstrap-server {client['bootstrap.servers']} --alter "
        f"--entity-type topics --entity-name {full} --add-config {name}={right}"
    )
    assert mend(client, problems) == []
    assert check(client, database) == []


@pytest.mark.fault(17, "a partition added to the feedback", "refused with the fix")
def test_shards_and_feedback_partitions_must_agree(client: Client, database: str) -> None:
    names = create(client, database, shards=2)
    admin = administration(client)
    admin.create_partitions([NewPartitions(names.feedback, 3)])[names.feedback].result(30)
    wait_for(lambda: describe(client, database)[names.feedback].partitions == 3, "its growth")
    (problem,) = check(client, database, shards=2)
    assert problem.topic == names.feedback
    assert "it has 3 partitions, the database has 2 shards" in problem.what
    assert "--shards 3" in problem.fix
    assert mend(client, [problem]) == [problem]


def test_changes_keep_the_partitions_that_they_began_with(client: Client, database: str) -> None:
    name = create(client, database).changes
    admin = administration(client)
    admin.create_partitions([NewPartitions(name, 6)])[name].result(30)
    wait_for(lambda: describe(client, database)[name].partitions == 6, "its growth")
    (problem,) = check(client, database)
    assert (problem.topic, problem.severity) == (name, "error")
    assert "it began with 4 partitions and has 6" in problem.what
    assert "STREAMYDB_CHANGES_PARTITIONS=4, then `streamydb rebuild`" in problem.fix
    assert mend(client, [problem]) == [problem]
    admin.delete_topics([name], operation_timeout=30)[name].result(30)
    # `describe` is refused while a topic is there and has no leaders any more.
    wait_for(lambda: name not in admin.list_topics(timeout=30).topics, "the topic to be gone")
    create(client, database)
    assert check(client, database) == []


def test_growing(client: Client, database: str) -> None:
    names = create(client, database, partitions=2)
    grow(client, database, 2)
    grow(client, database, 5)
    assert describe(client, database)[names.transactions].partitions == 5
    with pytest.raises(TopicsError, match="never takes one away"):
        grow(client, database, 4)


def test_growing_what_is_missing(client: Client, database: str) -> None:
    with pytest.raises(TopicsError, match="streamydb create"):
        grow(client, database, 2)


def test_what_it_was_founded_with_stays(client: Client, database: str) -> None:
    create(client, database, partitions=2)
    log, changes = log_id(client, database), changes_begun(client, database)
    assert [*changes.values()] == [4]
    founded = FoundingFacts(log=log, partitions=2, changes=changes)
    assert recall(client, database, log) == founded
    asked = FoundingFacts(log=log, partitions=5, id_window=7, changes=dict.fromkeys(changes, 5))
    assert record(client, database, asked) == replace(founded, id_window=7)
    places = Begins({"a rule": {0: 4}}), Begins({"a rule": {0: 9}, "another": {}})
    for begins in places:
        record(client, database, FoundingFacts(log=log, begins=begins))
    assert recall(client, database, log).begins == Begins({"a rule": {0: 4}, "another": {}})
    grow(client, database, 3)
    create(client, database, partitions=3)
    assert recall(client, database, log).partitions == 2
    assert recall(client, database, "another") == FoundingFacts(log="another")


def test_a_log_of_an_earlier_release_is_noted_before_it_grows(
    client: Client, database: str
) -> None:
    names = create(client, database)
    admin = administration(client)  # it must live until its futures are done
    for future in admin.delete_topics([names.founding]).values():
        future.result(30)
    wait_for(lambda: existing(client, [names.founding]) == [], "the topic to be gone")
    log = log_id(client, database)
    assert recall(client, database, log) == FoundingFacts(log=log)
    assert check(client, database) == [], "nobody knows what the changes began with"
    grow(client, database, 3)
    assert recall(client, database, log).partitions == 1


def test_syncing(client: Client, database: str) -> None:
    names = create(client, database)
    assert not is_synced(client, database)
    synced = {*names.all(), *names.shared(), names.streams, names.founding, names.rulings}
    assert set(set_sync(client, database, on=True)) == synced
    assert is_synced(client, database)
    assert names.feedback_of("b") in add_shared(client, database, "b")
    found = describe_topics(administrator(client), [names.feedback_of("b")])
    assert found[names.feedback_of("b")].settings["flush.messages"] == "1"
    assert names.feedback_of("b") in set_sync(client, database, on=False)
    assert not is_synced(client, database)


def test_deleting(client: Client, database: str) -> None:
    names = create(client, database)
    wanted = [*names.all(), names.streams, *names.shared(), names.founding, names.rulings]
    assert delete(client, database) == wanted
    assert delete(client, database) == []
    assert describe(client, database) == {}


def test_what_pipelines_share_is_added_where_it_is_missing(client: Client, database: str) -> None:
    """A database of an earlier release has neither; a pipeline with a name wants its feedback."""
    names = create(client, database, shards=2)
    admin = administration(client)  # it must live until its futures are done
    for future in admin.delete_topics(list(names.shared())).values():
        future.result(30)
    wait_for(lambda: existing(client, names.shared()) == [], "the topics to be gone")
    assert add_shared(client, database, "b") == [
        names.feedback_of("b"), names.control, names.digests,
    ]  # fmt: skip
    assert add_shared(client, database, "b") == add_shared(client, database) == []
    kept = names.founding, names.rulings, names.feedback_of("b")
    wanted = [*names.all(), names.streams, *names.shared(), *kept]
    assert delete(client, database) == wanted
    with pytest.raises(TopicsError, match="streamydb create"):
        add_shared(client, database)


def test_copies_that_the_cluster_cannot_hold(client: Client, database: str) -> None:
    with pytest.raises(TopicsError, match="Kafka refused to create"):
        create(client, database, replication=3, min_insync=2)


def test_kafka_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setattr("streamydb.kafka.admin.TIMEOUT_S", 0.2)
    with pytest.raises(TopicsError, match="streamydb up"):
        check({"bootstrap.servers": "127.0.0.1:1"}, database)
