"""The configuration of the embedded broker: Kafka's properties, its logging, the JVM's options."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamydb.errors import ConfigurationError
from streamydb.local.java import GIVES_BACK

HEAP_MB_DEFAULT = 1024
"""The broker's largest heap; Kafka itself lives in the page cache, not in the heap."""

SMALL_HEAP_MB = 128
"""The largest heap of a broker that takes little memory (`streamydb up --small`)."""

START_S_DEFAULT = 120.0  # how long it may take until it answers

BROKER_PROPERTIES: dict[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A mistyped topic name is an error, not a new topic with the wrong settings.
    "auto.create.topics.enable": "false",
    # One node: what is replicated three times by default has to live with one replica.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 partitions each by default: that is 100 folders and the time to open them.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # Nobody else will join the group: do not wait 3 s for it.
    "group.initial.rebalance.delay.ms": "0",
    # After a SIGKILL the node is let in again only when its old session has run out (default 9 s).
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    # 128 MB of heap by default; only the small internal topics are compacted.
    "log.cleaner.dedupe.buffer.size": str(2 * 1024 * 1024),
    # Half of the default: each of the threads keeps a megabyte outside the heap.
    "num.io.threads": "4",
    # Nobody asks Java's management for them, and there are thousands.
    "metrics.jmx.exclude": ".*",
}
"""Settings that do not depend on where the broker runs."""

_SMALL_PROPERTIES: dict[str, str] = {
    # The least that Kafka takes.
    "log.cleaner.dedupe.buffer.size": str(1024 * 1024 + 1),
    "log.cleaner.io.buffer.size": str(64 * 1024),
    # Each of these threads keeps a megabyte outside the heap, once for clients and once for the
    # controller.
    "num.io.threads": "2",
    "num.network.threads": "1",
    "background.threads": "2",
    "group.coordinator.threads": "1",
}
"""Settings of a broker that takes little memory."""


_FIRST_HEAP_MB = 64
"""A first heap that is larger is filled before anything is collected, and stays so large."""

_SMALL_FIRST_HEAP_MB = 32

_COLLECTOR = (
    # What lives is some 30 MB, whatever the load: a serial collection of it takes less processor
    # time than upstream's G1, which lets the heap grow to ten times that and keeps it.
    "-XX:+UseSerialGC",
    "-XX:-ShrinkHeapInSteps",
    "-XX:MinHeapSize=24m",
)

_USUAL = (
    *_COLLECTOR,
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=30",
    # Three to eight times as many calls and loops as by default until the second compiler takes
    # a method: a start on few cores needs the processor time.
    "-XX:Tier3InvocationThreshold=600",
    "-XX:Tier3MinInvocationThreshold=300",
    "-XX:Tier3CompileThreshold=6000",
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=40000",
    "-XX:Tier4BackEdgeThreshold=120000",
)

_SMALL = (
    *_COLLECTOR,
    "-XX:MinHeapDeltaBytes=4m",
    "-XX:MinHeapFreeRatio=5",
    "-XX:MaxHeapFreeRatio=10",
    "-XX:NewSize=4m",
    "-XX:MaxNewSize=4m",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=48m",
    # Each thread writes so many pages ahead of its stack.
    "-XX:StackShadowPages=10",
    "-XX:Tier3InvocationThreshold=600",
    "-XX:Tier3MinInvocationThreshold=300",
    "-XX:Tier3CompileThreshold=6000",
)
"""What the first compiler makes is small, too, and it makes it of what is called often."""


_BLANK = " \t\f"
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_NAME = re.compile(r"(?:\\.|[^\\ \t\f=:])*", re.DOTALL)
_SEPARATOR = re.compile(r"\A[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u.{0,4}|.?)", re.DOTALL)
_NUMBER = re.compile(r"u[0-9a-fA-F]{4}")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def cluster_id(identity: bytes) -> str:
    """Return 16 bytes as Kafka writes the id of a cluster: 22 characters of URL-safe base64.

    One in 64 would begin with a hyphen, which Kafka's tools take for an option; the first bit of
    such an id is cleared, as it may be: Kafka wants it unique, not a UUID of a certain version.
    """
    text = urlsafe_b64encode(identity).rstrip(b"=").decode()
    if not text.startswith("-"):
        return text
    return cluster_id(bytes([identity[0] & 0x7F]) + identity[1:])


def server_properties(
    data: Path, port: int, controller_port: int, extra: Mapping[str, str] | None = None, *,
    heap_mb: int = HEAP_MB_DEFAULT,
) -> str:  # fmt: skip
    """Return the broker's `server.properties`.

    ``port``: where clients connect, on 127.0.0.1. ``controller_port``: where the broker finds its
    own controller, on 127.0.0.1. ``extra``: properties that win over all others. ``heap_mb``: as of
    `jvm_options`.
    """
    here = {
        "log.dirs": str(data),
        "listeners": f"BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"BROKER://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
    }
    little = _SMALL_PROPERTIES if heap_mb <= SMALL_HEAP_MB else {}
    merged = BROKER_PROPERTIES | little | here | dict(extra or {})
    return "".join(f"{_name(name)}={_escape(value)}\n" for name, value in merged.items())


def parse_properties(text: str) -> dict[str, str]:
    r"""Read properties as Java does (`java.util.Properties.load`): lines that go on, comments.
    Raises ConfigurationError: what follows a `\u` is no number.
    """
    properties = {}
    for line in _logical_lines(text):
        name = _NAME.match(line)
        end = 0 if name is None else name.end()
        value = _SEPARATOR.sub("", line[end:], count=1)
        properties[_unescape(line[:end])] = _unescape(value)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments; one that ends with a backslash goes on in the next."""
    begun = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if not begun and (not line or line[0] in "#!"):
            continue
        if _GOES_ON.search(line):
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def jvm_options(heap_mb: int, logging: Path) -> list[str]:
    """Return the JVM's options: a modest heap that is given back, logging to a file.

    Up to `SMALL_HEAP_MB` everything else is small, too.
    """
    small = heap_mb <= SMALL_HEAP_MB
    first_mb = min(_SMALL_FIRST_HEAP_MB if small else _FIRST_HEAP_MB, heap_mb)
    return [
        f"-XX:InitialHeapSize={first_mb}m",
        f"-XX:MaxHeapSize={heap_mb}m",
        *(_SMALL if small else _USUAL),
        *GIVES_BACK,
        "-server",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={logging}",
    ]


def log4j_configuration(log_file: Path) -> str:
    """Return the Log4j configuration: at most 5 files of 10 MB."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="{log_file}" filePattern="{log_file}.%i">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1.}} %m%n"/>
      <SizeBasedTriggeringPolicy size="10 MB"/>
      <DefaultRolloverStrategy max="4"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Logger name="state.change.logger" level="WARN"/>
    <Root level="INFO"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""


def _unescape(value: str) -> str:
    units = _ESCAPE.sub(lambda match: _unescaped(match[1]), value)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(escape: str) -> str:
    if _NUMBER.fullmatch(escape):
        return chr(int(escape[1:], 16))
    if escape.startswith("u"):
        raise ConfigurationError(
            f"\\{escape} in the properties is no character: Java wants four hexadecimal digits "
            "after \\u; a backslash itself is written twice"
        )
    return _LETTERS.get(escape, escape)


def _name(name: str) -> str:
    escaped = re.sub(r"\\|[^ -~]", lambda match: _escaped(match[0]), name)
    return re.sub(r"[ =:#!]", lambda match: f"\\{match[0]}", escaped)


def _escape(value: str) -> str:
    """A value as Java reads it: such files are Latin-1 to it, so all else is told by numbers."""
    return re.sub(r"\A |\\|[^ -~]", lambda match: _escaped(match[0]), value)


def _escaped(character: str) -> str:
    if character in " \\":
        return f"\\{character}"
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
