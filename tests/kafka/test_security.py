"""Kafka over TLS with passwords: each role works with exactly its rights, and errors are clear."""

from __future__ import annotations

import datetime as dt
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.errors import SnapshotError
from streamydb.kafka import TopicNames, TopicsError, check, create, delete
from streamydb.kafka.admin import answers, drop_before
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.changes import KafkaSource, SourceError
from streamydb.kafka.clients import FOLLOWING, LOG, KafkaAppender, administrator, appender, reader
from streamydb.kafka.connection import RefusedError
from streamydb.kafka.creation import add_shared, existing
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.producer import AppendError, Producer
from streamydb.kafka.reader import ReadingError, TopicReader
from streamydb.kafka.receiving import spans
from streamydb.kafka.results import ResultReader
from streamydb.kafka.roles import apply
from streamydb.pipeline.markers import MarkerLoop
from streamydb.settings import Settings
from streamydb.testing.database import wait_for
from tests.support.secured import ADMIN, Authority, Secured, secret_of

pytestmark = pytest.mark.timeout(180)

TRANSACTION = {"id": "t1", "updates": [{"op": "put", "key": "k", "value": 1}]}
SCRAM = "SCRAM-SHA-512"


def write(settings: Settings, topic: str) -> KafkaError | None:
    """Try to append a record to a topic; the error that this gives."""
    import confluent_kafka

    found: list[KafkaError | None] = []
    plain = {"enable.idempotence": False, "message.timeout.ms": 20_000}
    producer = confluent_kafka.Producer({**settings.client_config(), **plain})
    try:
        producer.produce(topic, b"{}", on_delivery=lambda error, _: found.append(error))
        producer.flush(20)
    except KafkaException as error:
        found.append(error.args[0])
    return found[0]


def drop(admin: dict[str, str], topics: set[str]) -> None:
    """Delete topics, as a database of an earlier version has none of them."""
    client = administrator(admin)  # kept until it has answered
    answers(client.delete_topics(sorted(topics)), "delete")
    wait_for(lambda: not existing(admin, topics), "the topics to be gone", 30)


def read(settings: Settings, topic: str) -> KafkaError | None:
    """Try to read a topic; the error that this gives."""
    config = {**settings.client_config(), "group.id": "streamydb-x", "enable.partition.eof": True}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    error: KafkaError | None = consumer.list_topics(topic, timeout=20).topics[topic].error
    if error is None:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
    consumer.close()
    end = KafkaError._PARTITION_EOF
    return None if error is None or error.code() == end else error


def refused(error: KafkaError | None) -> bool:
    """Whether it is an error of missing rights."""
    return error is not None and error.code() in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }


@pytest.mark.parametrize(
    ("user", "mechanism"), [(ADMIN, "PLAIN"), ("admin", SCRAM), ("weak", "SCRAM-SHA-256")]
)
def test_each_mechanism_lets_in(secured: Secured, user: str, mechanism: str) -> None:
    if (user, mechanism) == ("admin", SCRAM):
        secured.add_scram([user])
    settings = secured.settings(user, mechanism)
    reader = TopicReader(settings.client_config(), "missing")
    with reader, pytest.raises(ReadingError, match=r"does not exist|may not read"):
        reader.partitions()


class TestRoles:
    """Each with exactly its own rights."""

    def test_client(self, as_role: Callable[[str], Settings]) -> None:
        settings = as_role("client")
        names = TopicNames(settings.database)
        with Producer(settings, timeout_s=20) as producer, ResultReader(settings):
            assert producer.append(TRANSACTION).offset == 0
        assert refused(read(settings, names.transactions))
        assert refused(write(settings, names.results))
        assert refused(read(settings, names.feedback))

    def test_facade(self, as_role: Callable[[str], Settings]) -> None:
        settings = as_role("facade")
        names = TopicNames(settings.database)
        with Producer(settings, timeout_s=20) as producer:
            where = producer.append(TRANSACTION)
        consumer = reader(settings.client_config(), FOLLOWING)
        ends = spans(consumer, names.transactions)
        assert ends[where.partition] == (0, 1)
        assert spans(consumer, names.changes)
        consumer.close()
        assert read(settings, names.transactions) is None
        assert read(settings, names.results) is None
        for topic in (names.results, names.changes, names.feedback, names.deadletters):
            assert refused(write(settings, topic)), topic

    def test_read_model(self, as_role: Callable[[str], Settings], secured: Secured) -> None:
        settings = as_role("read-model")
        names = TopicNames(settings.database)
        assert write(secured.settings(ADMIN), names.changes) is None
        source = KafkaSource(settings.client_config(), names.changes)
        found = source.describe()
        source.assign(dict.fromkeys(found.spans, 0))
        wait_for(lambda: len(source.fetch(1).records) > 0, "the record", 30)
        source.close()
        assert refused(read(settings, names.transactions))
        for topic in names.all():
            assert refused(write(settings, topic)), topic

    @pytest.mark.long
    def test_sequencer(self, as_role: Callable[[str], Settings]) -> None:
        settings = as_role("sequencer")
        names = TopicNames(settings.database)
        with MarkerLoop(settings) as loop:
            with Producer(settings, timeout_s=20) as producer:
                producer.append(TRANSACTION)
            wait_for(lambda: loop.rounds > 0, f"a round of markers ({loop.last_error})", 60)
        for topic in (names.results, names.changes, names.feedback):
            assert refused(write(settings, topic)), topic

    @pytest.mark.long
    def test_pipeline(self, as_role: Callable[[str], Settings], secured: Secured) -> None:
        settings = as_role("pipeline")
        names = TopicNames(settings.database)
        added = {*names.shared(), names.streams, names.founding, names.rulings}
        assert not [p for p in check(settings.client_config(), settings.database, 1) if p.setting]
        for topic in names.all():
            assert write(settings, topic) is None, topic
            assert read(settings, topic) is None, topic
        for topic in {*names.all()} - {names.feedback}:  # its own records it does delete
            with pytest.raises(TopicsError, match="refused"):
                drop(settings.client_config(), {topic})
        early = drop_before(settings.client_config(), names.feedback, {0: 1}, 2**41)
        assert early == {0: 1}
        drop(secured.settings(ADMIN).client_config(), added)
        assert set(add_shared(settings.client_config(), settings.database)) == added
        assert write(settings, names.streams) is None
        assert refused(read(settings, names.streams))
        for topic in (*names.shared(), names.founding, names.rulings):
            assert write(settings, topic) is None, topic
            assert read(settings, topic) is None, topic
        with pytest.raises(TopicsError, match="refused"):
            add_shared(settings.client_config(), settings.database, "standby")

    @pytest.mark.long
    def test_standby(self, as_role: Callable[[str], Settings]) -> None:
        settings = as_role("standby")
        made = set(add_shared(settings.client_config(), settings.database, "standby"))
        assert f"{settings.database}.feedback.standby" in made
        for topic in made - {TopicNames(settings.database).streams}:
            assert write(settings, topic) is None, topic
            assert read(settings, topic) is None, topic

    @pytest.mark.long
    def test_auditor(self, as_role: Callable[[str], Settings]) -> None:
        settings = as_role("auditor")
        names = TopicNames(settings.database)
        for topic in (names.transactions, names.results, names.changes, names.deadletters):
            assert read(settings, topic) is None, topic
        for topic in names.all():
            assert refused(write(settings, topic)), topic

    @pytest.mark.long
    def test_admin(self, as_role: Callable[[str], Settings]) -> None:
        settings = as_role("admin")
        names = TopicNames(settings.database)
        delete(settings.client_config(), settings.database)
        create(settings.client_config(), settings.database)
        for topic in names.all():
            assert refused(write(settings, topic)), topic
        for topic in {*names.all()} - {names.transactions}:
            assert refused(read(settings, topic)), topic
        with pytest.raises(TopicsError, match="refused"):
            create(settings.client_config(), f"{settings.database}x")


@pytest.mark.long
def test_backup_fork_restore_and_handover_with_the_roles_of_the_table(
    secured: Secured, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Restore and fork are done twice: a repeated one reads the log that it has begun."""
    admin = secured.settings(ADMIN, database=database)
    create(admin.client_config(), database)
    with Producer(admin, timeout_s=20) as producer:
        producer.append(TRANSACTION)
    secured.add_scram(["operator"])
    for role, topics in (
        *(("auditor", database), ("admin", database)),
        *((role, f"{database}-{new}") for role in ("admin", "client") for new in "fr"),
    ):
        apply(admin.client_config(), topics, role, "User:operator")
    operator = secured.settings("operator", SCRAM, database=database)
    for name, value in secured.environment(operator).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STREAMYDB_HOME", str(tmp_path))

    def done(*words: str) -> None:
        said = invoke(operator, *words, "--json")
        assert said.exit_code == 0, (said.output, said.exception)

    folder = str(tmp_path / "backup")
    done("backup", folder)
    for _ in range(2):
        done("fork", f"{database}-f")
        done("restore", folder, "--database", f"{database}-r")
        (tmp_path / "databases" / f"{database}-f" / "database.json").unlink()
    add_shared(admin.client_config(), database)
    refusal = invoke(operator, "handover")
    assert "no standby is running" in refusal.output
    assert write(operator, TopicNames(database).control) is None


class TestRefusals:
    """What is wrong is said at once, with the setting that mends it, and without a secret."""

    def told(self, settings: Settings) -> set[str]:
        """What each kind of client says about settings that cannot work."""
        connection = settings.client_config()
        with pytest.raises(RefusedError) as admin:
            check(connection, settings.database)
        with pytest.raises(ReadingError) as reading, TopicReader(connection, "t") as topic:
            topic.partitions()
        with pytest.raises(RefusedError) as results:
            ResultReader(settings)
        consumer = reader(settings.client_config(), FOLLOWING)
        with pytest.raises(KafkaUnavailableError) as tail:
            spans(consumer, "t")
        consumer.close()
        with MarkerLoop(settings) as loop:
            wait_for(lambda: loop.last_error is not None, "the failure of the markers", 30)
        messages = {str(error.value) for error in (admin, reading, results, tail)}
        return messages | {str(loop.last_error)}

    @pytest.mark.fault(26, "a wrong password for Kafka", "refused and named")
    def test_a_wrong_password(self, secured: Secured) -> None:
        (message,) = self.told(secured.settings("stranger", SCRAM))
        assert "does not let user 'stranger' in" in message
        assert "STREAMYDB_SASL_PASSWORD_FILE" in message
        assert secret_of("stranger") not in message

    @pytest.mark.long
    def test_a_wrong_password_of_an_append(self, secured: Secured) -> None:
        producer = Producer(secured.settings("stranger", SCRAM), timeout_s=3)
        with producer, pytest.raises(AppendError, match="does not let user 'stranger' in"):
            producer.append(TRANSACTION)

    @pytest.mark.long
    def test_an_unknown_authority(self, secured: Secured, tmp_path: Path) -> None:
        other = Authority(tmp_path, "another authority")
        (message,) = self.told(secured.settings(ADMIN, ssl_ca_file=other.file))
        assert "is not trusted" in message
        assert "STREAMYDB_SSL_CA_FILE" in message

    @pytest.mark.fault(26, "an expired certificate of the broker", "refused and named")
    def test_a_certificate_that_has_expired(self, tmp_path: Path, secured: Secured) -> None:
        with tls_server(tmp_path, left=-dt.timedelta(hours=1)) as (address, authority):
            connection = own(secured, address, authority).client_config()
            with pytest.raises(RefusedError, match="certificate has expired"):
                check(connection, "bank")

    def test_a_certificate_for_another_host(self, tmp_path: Path, secured: Secured) -> None:
        with tls_server(tmp_path, host="127.0.0.2") as (address, authority):
            connection = own(secured, address, authority).client_config()
            with pytest.raises(RefusedError, match="address mismatch"):
                check(connection, "bank")

    @pytest.mark.long
    def test_without_tls(self, secured: Secured) -> None:
        plain = Settings(bootstrap=secured.broker.bootstrap)
        result = invoke(plain, "doctor", "--json")
        (finding,) = [each for each in json.loads(result.stdout) if each["name"] == "broker"]
        assert finding["level"] == "fail"

    def test_a_database_that_one_may_not_see(
        self, secured: Secured, as_role: Callable[[str], Settings]
    ) -> None:
        database = as_role("client").database
        stranger = secured.settings("nobody", database=database)
        reader = TopicReader(stranger.client_config(), f"{database}.transactions")
        with reader, pytest.raises(ReadingError, match="may not read"):
            reader.partitions()
        producer = Producer(stranger, timeout_s=10)
        with producer, pytest.raises(AppendError, match="streamydb acls"):
            producer.append(TRANSACTION)
        source = KafkaSource(stranger.client_config(), f"{database}.changes")
        with pytest.raises(SourceError, match="does not exist"):
            source.describe()

    @pytest.mark.parametrize("serve", [KafkaAppender.flush, KafkaAppender.poll])
    def test_what_ends_an_appender_is_told_whichever_call_hears_of_it(
        self,
        secured: Secured,
        as_role: Callable[[str], Settings],
        serve: Callable[[KafkaAppender, float], int],
    ) -> None:
        database = as_role("client").database
        topic = TopicNames(database).transactions
        connection = secured.settings("nobody", database=database).client_config()
        producer = appender(connection, LOG)
        fates: list[KafkaError] = []
        try:
            producer.produce(topic, b"{}", on_delivery=lambda error, _: fates.append(error))
        except KafkaException as early:  # its end came before the record
            fates.append(early.args[0])
        said = producer.connections

        def ended() -> bool:
            serve(producer, 1)
            return said.ended is not None

        wait_for(ended, "its end")
        assert "authorization failed" in said.cause(fates[0]).str()
        with pytest.raises(KafkaException):
            producer.produce(topic, b"{}")
        copied = TopicAppender(connection, topic, SnapshotError)
        with pytest.raises(SnapshotError, match="authorization failed"), copied:
            copied.append(b"{}")


def test_the_commands_show_no_secret(
    secured: Secured, as_role: Callable[[str], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = secured.settings(ADMIN, database=as_role("client").database)
    for name, value in secured.environment(admin).items():
        monkeypatch.setenv(name, value)
    said = []
    for command in (
        ["doctor"], ["status"], ["create", "--partitions", "2"], ["check"],
        ["acls", "--role", "pipeline", "--principal", "User:p"], ["version"],
    ):  # fmt: skip
        result = CliRunner().invoke(app, command)
        assert not isinstance(result.exception, AssertionError)
        said.append(result.output)
    assert "answers" in said[0]
    assert "kafka-acls.sh" in said[4]
    assert secret_of(ADMIN) not in "".join(said)
    assert "verysecret" not in "".join(said)


@pytest.mark.long
def test_grants_are_applied_by_the_command(
    secured: Secured, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = secured.settings(ADMIN, database=database)
    create(admin.client_config(), database)
    for name, value in secured.environment(admin).items():
        monkeypatch.setenv(name, value)
    newcomer = secured.settings("newcomer", database=database)
    assert refused(write(newcomer, f"{database}.transactions"))
    command = ["acls", "--role", "client", "--principal", "User:newcomer", "--apply"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert write(newcomer, f"{database}.transactions") is None


@pytest.mark.long
def test_certificates_instead_of_passwords(tmp_path: Path) -> None:
    """The broker demands a client certificate; without one nobody comes in."""
    secured = Secured(tmp_path, client_auth="required")
    with secured.broker:
        issued = secured.authority.issue("somebody")
        shown: dict[str, Any] = {
            "ssl_certificate_file": issued.certificate, "ssl_key_file": issued.key
        }  # fmt: skip
        create(secured.settings(ADMIN, **shown).client_config(), "bank")
        without = secured.settings(ADMIN).client_config()
        with pytest.raises(RefusedError, match="STREAMYDB_SSL_CERTIFICATE_FILE"):
            check(without, "bank")


def own(secured: Secured, address: str, authority: Authority) -> Settings:
    return secured.settings(ADMIN, bootstrap=address, ssl_ca_file=authority.file)


def invoke(settings: Settings, *command: str) -> Any:
    bootstrap = ["--bootstrap", settings.bootstrap_servers]
    return CliRunner().invoke(app, [command[0], *bootstrap, *command[1:]])


@contextmanager
def tls_server(folder: Path, **certificate: Any) -> Iterator[tuple[str, Authority]]:
    """A server that only shakes hands, with a certificate that is not in order."""
    authority = Authority(folder)
    issued = authority.issue("server", age=dt.timedelta(days=2), **certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", authority
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
