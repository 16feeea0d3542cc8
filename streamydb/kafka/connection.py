"""Explain Kafka's errors: why a broker refuses a client, how to fix it, and which errors pass.

librdkafka goes on trying when a password is wrong or a certificate has expired, and answers only
"timed out" in the end. It tells the reason to the client's `error_cb`, a `ConnectionState`, and
`metadata` gives up as soon as no waiting mends the reason.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamydb.errors import ConfigurationError, StreamyError

PURGE_QUEUE: Final = KafkaError._PURGE_QUEUE  # noqa: SLF001 - Confluent's spelling
UNKNOWN_PARTITION: Final = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 - Confluent's spelling

ATTEMPT_S: Final = 1.0
"""How long the first request waits before the reasons for its failure are looked at; the next ones
wait longer and longer.
"""

_PASSING: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,  # noqa: SLF001 - Confluent's spelling
    KafkaError._NOENT,  # noqa: SLF001 - "No leaders found": the brokers know of none yet
}
"""What a request about a partition may be answered while its leader changes or comes back."""

_ABSENT: Final = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - Confluent's spelling
    KafkaError._RESOLVE,  # noqa: SLF001 - Confluent's spelling
    KafkaError._TIMED_OUT,  # noqa: SLF001 - Confluent's spelling
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - Confluent's spelling
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REPLICA_NOT_AVAILABLE,
}
"""What any request may be answered, by the library itself too, while there is no broker or one
starts.
"""

_AGAIN_S: Final = 0.1
_AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 - Confluent's spelling
_SSL: Final = KafkaError._SSL  # noqa: SLF001 - Confluent's spelling
_PROBE_S: Final = 3.0
_NUMBER: Final = 0x7364_6221
_HELLO: Final = struct.pack(">ihhih", 10, 18, 0, _NUMBER, -1)
"""ApiVersions of version 0, without a client's name: every broker answers it, before a login too.
"""

_ANSWER: Final = struct.Struct(">ii")
"""How an answer begins: its size, and the number of the request."""

_ALERT: Final = b"\x15\x03"  # how TLS answers a question that it cannot read
Answer = Literal["kafka", "silent", "tls", "other", "nobody"]
"""Who answers as Kafka does, gives no answer in time, speaks TLS, or something else."""

_WORSE: Final[tuple[Answer, ...]] = ("silent", "tls", "other")
"""Answers that are not Kafka's, the best first."""

_HELLO_BYTES_MAX: Final = 1 << 20
_NAMELESS_HOST: Final = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
"""What a resolver answers that knows of no such host, as against one that gives no answer."""

_NO_TLS: Final = "connecting to a PLAINTEXT broker listener"
_HINTS: Final = (_NO_TLS, "verify that security.protocol is correctly configured")
"""What librdkafka adds if a broker ends a connection as one with other settings would."""

_NAMELESS: Final = "GroupCoordinator:"
"""A connection whose host librdkafka does not know yet, or no more; its failures tell nothing."""


class Mistake(NamedTuple):
    """Something that is wrong with an address: what listens there, and what to do."""

    what: str
    fix: str


class RefusedError(ConfigurationError):
    """A broker refuses this client, or this client the broker; waiting does not help."""


class ConnectionState:
    """The state of a client's connections; use it as the client's `error_cb`.

    Attributes:
        refusal: why no connection can succeed with these settings; None if nothing says so.
        doubt: what may be wrong with the settings, as brokers end connections in a way that tells
            of it, or of a broker that ends; None if nothing says so.
        last: the last error; None if there was none.
        ended: the error that ended the client (a fatal one); None while it goes on.
        also: called with every error, too.
    """

    def __init__(self, connection: Mapping[str, Any]) -> None:
        """Keep what is needed to explain; no secret is among it."""
        self.refusal: str | None = None
        self.doubt: str | None = None
        self.last: KafkaError | None = None
        self.ended: KafkaError | None = None
        self.also: Callable[[KafkaError], None] | None = None
        self._bootstrap = str(connection["bootstrap.servers"])
        self._setting = _setting(connection)
        self._user = connection.get("sasl.username")
        self._authorities = connection.get("ssl.ca.pem")

    def __call__(self, error: KafkaError) -> None:
        self.last = error
        if error.fatal():
            self.ended = error
        if error.code() == _AUTHENTICATION:
            who = "this client" if self._user is None else f"user {self._user!r}"
            self.refusal = (
                f"Kafka at {self._bootstrap} does not let {who} in: the name, the password or the "
                "mechanism is wrong. Check STREAMYDB_SASL_USERNAME, STREAMYDB_SASL_MECHANISM and "
                "the file that STREAMYDB_SASL_PASSWORD_FILE names"
            )
        elif _of_tls(error):
            self.refusal = self._encryption(error.str())
        elif any(hint in error.str() for hint in _HINTS):
            # The security protocol may be wrong; it is if Kafka answers without TLS.
            reason = error.str()
            if _NO_TLS in reason and "kafka" in map(_answer_of, self._bootstrap.split(",")):
                where = f"Kafka at {self._bootstrap}"
                self.refusal = f"{where} speaks no TLS there: correct {self._setting}"
            self.doubt = f"if Kafka runs, {self._setting} may be wrong: {_first(reason)}"
        if self.also is not None:
            self.also(error)

    def cause(self, error: KafkaError) -> KafkaError:
        """Why a record was not written: what ended the client, if it only says "dropped"."""
        return self.ended or self.last or error if error.code() == PURGE_QUEUE else error

    def explained(self, error: KafkaException) -> KafkaException | RefusedError:
        """The error to raise: the refusal if there was one, else what Kafka said, with a doubt."""
        if self.refusal is not None:
            return RefusedError(self.refusal)
        if self.doubt is None:
            return error
        kafka_error = error.args[0]
        return KafkaException(KafkaError(kafka_error.code(), f"{kafka_error.str()}; {self.doubt}"))

    def reason(self, error: KafkaException) -> str:
        """Say why there was no answer: what is doubted, else the last error, else Kafka's word."""
        return self.doubt or (self.last or error.args[0]).str()

    def _encryption(self, words: str) -> str:
        """Say what is wrong with TLS; OpenSSL tells Python more than librdkafka passes on."""
        if "certificate verify failed" not in words:
            return (
                f"Kafka at {self._bootstrap} cannot be spoken to over TLS ({_first(words)}). Check "
                "STREAMYDB_SECURITY_PROTOCOL, and that the broker accepts the certificate that "
                "STREAMYDB_SSL_CERTIFICATE_FILE names"
            )
        reason = next(filter(None, map(self._verified, self._bootstrap.split(","))), None)
        return (
            f"the certificate of Kafka at {self._bootstrap} is not trusted: "
            f"{reason or 'it cannot be verified'}. Renew it on the broker if it has expired, use "
            "the host name that it is made for, or name the authority that signed it with "
            "STREAMYDB_SSL_CA_FILE"
        )

    def _verified(self, address: str) -> str | None:
        """Why a broker's certificate does not pass; None if it does or cannot be had."""
        context = ssl.create_default_context(cadata=self._authorities)
        try:
            host, port = _host_and_port(address)
            with (
                socket.create_connection((host, port), _PROBE_S) as plain,
                context.wrap_socket(plain, server_hostname=host),
            ):
                return None
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except (OSError, ValueError):
            return None


def listens(addresses: str) -> bool:
    """Return True if somebody may listen at one of some addresses (`host:port,...`).

    Nobody does when each of them refuses a connection, or has a name that does not exist. One that
    is out of sight may be there.
    """
    return any(map(_listens, addresses.split(",")))


def _listens(address: str) -> bool:
    try:
        socket.create_connection(_host_and_port(address), ATTEMPT_S).close()
    except ConnectionRefusedError:
        return False
    except socket.gaierror as error:
        return error.errno not in _NAMELESS_HOST
    except (OSError, ValueError):
        return True
    return True


def answer_of(connection: Mapping[str, Any]) -> Answer:
    """Return how the addresses of a client's settings answer its first question.

    The best answer counts: one that is Kafka is enough, and one that is silent may be. Over TLS
    nobody is asked, as librdkafka tells at once what is wrong there.
    """
    if _protocol(connection).endswith("SSL"):
        return "nobody"
    answers: set[Answer] = set()
    for address in str(connection["bootstrap.servers"]).split(","):
        answers.add(_answer_of(address))
        if "kafka" in answers:
            return "kafka"
    return next((answer for answer in _WORSE if answer in answers), "nobody")


def mistake_of(answer: Answer, connection: Mapping[str, Any]) -> Mistake | None:
    """Return why a client cannot be of use whose settings are these; None: it may be."""
    setting = _setting(connection)
    if answer == "tls":
        fix = f"set {setting} to SSL or SASL_SSL, or name another address with --bootstrap"
        return Mistake("speaks TLS, and is spoken to without", fix)
    if answer == "other":
        fix = f"name Kafka's address with --bootstrap, or how it is spoken to with {setting}"
        return Mistake("does not answer as Kafka does", fix)
    return None


def _protocol(connection: Mapping[str, Any]) -> str:
    return str(connection.get("security.protocol", "PLAINTEXT"))


def _setting(connection: Mapping[str, Any]) -> str:
    """Name the setting that says how Kafka is spoken to, and what it is now."""
    return f"STREAMYDB_SECURITY_PROTOCOL (now {_protocol(connection)})"


def _answer_of(address: str) -> Answer:
    answer = b""
    try:
        with socket.create_connection(_host_and_port(address), ATTEMPT_S) as peer:
            peer.settimeout(_PROBE_S)
            peer.sendall(_HELLO)
            while more := peer.recv(_ANSWER.size - len(answer)):
                answer += more
    except ConnectionRefusedError:
        return "nobody"
    except ConnectionError:
        pass
    except (OSError, ValueError):
        return "silent"
    if _is_kafka(answer):
        return "kafka"
    return "tls" if answer.startswith(_ALERT) else "other"


def _is_kafka(answer: bytes) -> bool:
    """Return True if this is the beginning of an answer to `_HELLO`."""
    if len(answer) < _ANSWER.size:
        return False
    size, number = _ANSWER.unpack(answer)
    return bool(number == _NUMBER) and _ANSWER.size <= size <= _HELLO_BYTES_MAX


def _host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`."""
    host, _, port = address.strip().rpartition(":")
    return host.strip("[]"), int(port)


def metadata(client: Any, topic: str | None, timeout_s: float) -> Any:
    """Return the cluster's metadata, of one topic or of all.

    ``client``: any client with a `connections`; a consumer that is not assigned yet. ``topic``: the
    topic's name; None: all that this user may see. Raises RefusedError: the settings cannot work.
    Raises KafkaException: no answer in time.
    """
    connections: ConnectionState = client.connections
    deadline = time.monotonic() + timeout_s
    asked = {} if topic is None else {"topic": topic}
    attempt_s = ATTEMPT_S
    while True:
        left = deadline - time.monotonic()
        try:
            cluster = client.list_topics(**asked, timeout=max(0.01, min(attempt_s, left)))
        except KafkaException as error:
            failed = error
        else:
            connections.refusal = connections.doubt = None
            return cluster
        client.poll(0)  # serves `connections`
        if connections.refusal is not None or left <= attempt_s:
            raise connections.explained(failed) from failed
        attempt_s *= 2


def passes(error: BaseException | None) -> bool:
    """Return True if the same request may succeed a moment later.

    `KafkaError.retriable()` does not tell: it is set for requests of transactions only.
    """
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


def may_pass(error: KafkaError) -> bool:
    """Return True for what is told of a partition that there is, while its leader changes, comes
    back, or is not known yet.
    """
    return error.code() in _PASSING or error.code() == UNKNOWN_PARTITION


def is_transient(error: BaseException | None) -> bool:
    """Return True if a service should ask again later: Kafka is away, or not ready yet.

    What made an error counts (`__cause__`), so that an error of ours is judged by Kafka's answer.
    """
    while error is not None:
        if isinstance(error, RefusedError):
            return False
        if isinstance(error, KafkaException):
            return passes(error) or error.args[0].code() in _ABSENT
        if isinstance(error, TimeoutError):
            return True
        error = error.__cause__
    return False


def watermarks(consumer: Any, topic: str, number: int, timeout_s: float) -> tuple[int, int]:
    """The first offset of a partition and the one after its last record, asked of the broker now.

    A leader that is changing is asked again: one whose machine stood still for some seconds has
    been deposed, and has to be made the leader anew. Until then librdkafka may know no partition.
    Raises KafkaException: no answer in time, or one that does not pass.
    """
    deadline = time.monotonic() + timeout_s
    partition = TopicPartition(topic, number)
    while True:
        left = max(0.01, deadline - time.monotonic())
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=left)
        except KafkaException as error:
            if not may_pass(error.args[0]) or time.monotonic() + _AGAIN_S > deadline:
                raise
            time.sleep(_AGAIN_S)
        else:
            return low, high


def _of_tls(error: KafkaError) -> bool:
    """Return True if TLS failed; a broker that refuses a certificate says so only later."""
    reason = error.str()
    failed = error.code() == _SSL or ":SSL routines:" in reason
    return failed and not reason.startswith(_NAMELESS)


def _first(reason: str) -> str:
    """An error of librdkafka without its address and its hints."""
    return reason.partition(" (after ")[0][-200:]


log = logging.getLogger("streamydb")

_START_AGAIN_S: Final = 0.2
_START_AGAIN_S_MAX: Final = 2.0
_SAY_S: Final = 5.0
_NEVER: Final = float("-inf")
_Answer = TypeVar("_Answer")


class StopRequestedError(StreamyError):
    """The service was told to stop before it had started."""


class KafkaRetry:
    """Asks Kafka until it answers.

    Args:
        stopped: waits for so many seconds, and returns whether the service is to stop.
        note: is told why it waits, and None when it waits no longer.
        addresses: Kafka's; where nobody listens, that is seen at once, and not after half a minute.
    """

    def __init__(
        self,
        stopped: Callable[[float], bool],
        note: Callable[[str | None], None] = lambda _: None,
        addresses: str | None = None,
    ) -> None:
        self._addresses = addresses
        self._stopped = stopped
        self._note = note

    def call(self, action: Callable[[], _Answer], *, look: bool = True) -> _Answer:
        """The answer of `action`, which may be called any number of times.

        ``look``: whether to see first that somebody listens.
        Raises StopRequestedError: the service is to stop. Raises Exception: what `action` raises
        and no waiting mends.
        """
        wait_s, said_s = _START_AGAIN_S, _NEVER
        try:
            while not self._stopped(0):
                try:
                    if look:
                        self._look()
                    answer = action()
                except Exception as error:
                    if not is_transient(error):
                        raise
                    said_s = self._say(error, said_s)
                else:
                    if said_s != _NEVER:
                        log.info("Kafka answers")
                    return answer
                self._stopped(wait_s)
                wait_s = min(2 * wait_s, _START_AGAIN_S_MAX)
        finally:
            if said_s != _NEVER:
                self._note(None)
        raise StopRequestedError("told to stop while it started")

    def _look(self) -> None:
        if self._addresses is not None and not listens(self._addresses):
            what = f"Kafka does not answer: nobody listens at {self._addresses}"
            raise StreamyError(what) from TimeoutError()

    def _say(self, error: Exception, said_s: float) -> float:
        """Log why it waits; return when the log was last written."""
        self._note(str(error))
        now_s = time.monotonic()
        if now_s - said_s < _SAY_S:
            return said_s
        log.warning("waiting for Kafka: %s", error)
        return now_s
