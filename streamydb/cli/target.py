"""Find the database that a command means: its settings, its folder, and its Kafka."""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from streamydb.cli.common import EXIT_USAGE, fail, read_settings, say
from streamydb.cli.options import DatabaseOptions

if TYPE_CHECKING:
    from pathlib import Path

    from streamydb.kafka.admin import TopicDescription
    from streamydb.local.folder import DatabaseFolder
    from streamydb.settings import ClientConfig, Settings


DATABASE: Final = "bank"  # the name of the database that a command means if none is given


class Target(NamedTuple):
    """One database as the options, the environment and its own record name it."""

    settings: Settings
    files: DatabaseFolder

    @property
    def database(self) -> str:
        return self.settings.database

    @property
    def connection(self) -> ClientConfig:
        return self.settings.client_config()

    def must_listen(self) -> None:
        """See to it that a command ends at once where Kafka's client would try for long. Raises
        Failure: nobody listens at Kafka's address, or something else does.
        """
        from streamydb.kafka.connection import answer_of, listens, mistake_of

        if not listens(self.bootstrap):
            is_named = self.settings.bootstrap is not None
            embedded = (
                ""
                if is_named
                else f"the embedded broker of {self.settings.home} does not run, and "
            )
            up = "streamydb up" if is_named else self.command("up")
            fail(
                f"{embedded}no Kafka at {self.bootstrap}; start it (`{up}`) or name another "
                "one with --bootstrap"
            )
        answer = answer_of(self.connection)
        mistake = mistake_of(answer, self.connection)
        if mistake is not None:
            fail(f"what listens at {self.bootstrap} {mistake.what}: {mistake.fix}")
        if answer == "silent":
            _tell_slow(self.bootstrap)

    def must_exist(self) -> TopicDescription:
        """See to it that Kafka has the database; return what its log is like. Raises Failure: there
        is no such database, or no Kafka at its address; TopicsError: Kafka does not answer.
        """
        from streamydb import kafka

        self.must_listen()
        name = kafka.TopicNames(self.database).transactions
        log = kafka.describe(self.connection, self.database).get(name)
        if log is None:
            fail(
                f"there is no database {self.database} at {self.bootstrap} (no topic {name}): name "
                "it with --database and --bootstrap"
            )
        return log

    def options(self) -> list[str]:
        words = [] if self.database == DATABASE else ["--database", self.database]
        home = "home" in self.settings.model_fields_set
        return [*words, *(["--home", str(self.settings.home)] if home else [])]

    def command(self, *words: str) -> str:
        """Return a command for this database as a person can type it."""
        return shlex.join(["streamydb", *words, *self.options()])

    @property
    def procedures(self) -> Path:
        return self.settings.procedures or self.files.procedures

    @property
    def bootstrap(self) -> str:
        return self.settings.bootstrap_servers


@cache
def _tell_slow(bootstrap: str) -> None:
    """Say once in a command why nothing seems to happen."""
    say(f"{bootstrap} takes connections, and is slow to answer: waiting for Kafka.")


def find_target(options_of_database: DatabaseOptions, **more: object) -> Target:
    """Put together what is known of a database; options win over the environment over its record.

    The record of its creation gives the facts that are fixed then (shards, grouping)
    and Kafka's address, where neither option nor environment names them.
    """
    from streamydb.local.folder import DatabaseFolder

    settings = read_settings(**options_of_database._asdict(), **more)
    folder = DatabaseFolder(settings.home, settings.database)
    record = folder.record()
    if record is None:
        return Target(settings, folder)
    names = ("shards", "grouping", "bootstrap")
    recorded = {name: getattr(record, name) for name in names}
    for name in ("id_window", "digest_interval"):
        if getattr(record, name) is not None:
            recorded[name] = getattr(record, name)
    missing = {name: recorded[name] for name in recorded if name not in settings.model_fields_set}
    if not missing:
        return Target(settings, folder)
    options = {name: getattr(settings, name) for name in settings.model_fields_set}
    return Target(read_settings(**{**missing, **options}), folder)


def facade_of(target: Target, url: str | None) -> str:
    """Return the facade to ask: the one that is named, else the one that `up` started. Raises
    Failure: there is none, or it serves another Kafka's database, or nobody listens there.
    """
    from streamydb.kafka.connection import listens

    address = url or target.files.facade_url()
    if address is None:
        fail(
            f"there is no facade of {target.database}: start one (`{target.command('up')}`), or "
            "name it with --url"
        )
    if url is None:
        # Refuse the facade of this home if another Kafka is named: its database is another one.
        served = target.files.facade_bootstrap()
        if served is not None and not {*served.split(",")} & {*target.bootstrap.split(",")}:
            fail(
                f"the facade that `up` started, {address}, serves {target.database} at {served}, "
                f"not at {target.bootstrap}: name a facade of that one with --url"
            )
    if not listens(_place_of(address)):
        fail(
            f"nobody listens at {address}: start the facade (`{target.command('up')}`), or name "
            "another one with --url"
        )
    return address


def _place_of(url: str) -> str:  # noqa: RET503 - `fail` does not return
    """Host and port of a URL. Raises Failure: it is none."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443, "kafka": 9092}[parts.scheme]
        if parts.hostname:
            return f"{parts.hostname}:{port}"
    except (KeyError, ValueError):
        pass
    fail(f"--url: {url!r} is no URL, such as http://127.0.0.1:8080", EXIT_USAGE)
