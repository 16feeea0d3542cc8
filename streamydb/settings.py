"""All settings of a streamy-db, in one class; nothing is read before it is constructed.

Every field can be given as an argument or as an environment variable with the prefix `STREAMYDB_`
(`STREAMYDB_DATABASE=bank`). Secrets are named by the file that holds them and are read only when a
client is configured; no secret is an attribute, so none shows up in a log or a `repr`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamydb.errors import ConfigurationError
from streamydb.limits import (
    DATABASE_NAME,
    DIGEST_INTERVAL_DEFAULT,
    DIGEST_INTERVAL_MIN,
    ID_WINDOW_DEFAULT,
    PARTITIONS_MAX,
    SHARDS_MAX,
)

__all__ = ["BOOTSTRAP_DEFAULT", "BrokerFileError", "ClientConfig", "SecretFileError", "Settings"]

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
"""Where a broker is looked for when none is named and the embedded one does not run."""

_PEM = "-----BEGIN "

_JAAS_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class BrokerFileError(ConfigurationError, ValueError):
    """The file that has the embedded broker's address cannot be read."""


class SecretFileError(ConfigurationError, ValueError):
    """A file that the settings name cannot be read, or does not hold what it should."""


class ClientConfig(dict[str, str]):
    """A Kafka client's configuration, which may hold secrets and therefore shows only its keys."""

    def __repr__(self) -> str:
        """Name the options and hide their values."""
        return f"ClientConfig({', '.join(sorted(self))})"

    __str__ = __repr__


def _home_default() -> Path:
    """Return the data folder of a user who named none."""
    return Path.home() / ".local" / "share" / "streamydb"


def _cache_default() -> Path:
    """Return the cache folder of a user who named none."""
    return Path.home() / ".cache" / "streamydb"


class Settings(BaseSettings):
    """The settings of one database and of the clients that talk to its Kafka cluster."""

    model_config = SettingsConfigDict(
        env_prefix="STREAMYDB_", frozen=True, extra="forbid", env_ignore_empty=True
    )

    database: str = Field(
        default="bank", description="The database's name; its topics begin with it."
    )
    bootstrap: str | None = Field(
        default=None, description="Kafka's addresses, host:port[,host:port]; else embedded."
    )
    home: Path = Field(
        default_factory=_home_default, description="Data folder: embedded broker, checkpoints."
    )
    cache: Path = Field(
        default_factory=_cache_default, description="Cache folder: jars, value files."
    )

    shards: int = Field(
        default=1, ge=1, le=SHARDS_MAX, description="Slices of the keys; resize changes them."
    )
    partitions: int = Field(
        default=1,
        ge=1,
        le=PARTITIONS_MAX,
        description="Partitions of the transactions topic at creation.",
    )
    changes_partitions: int = Field(
        default=4,
        ge=1,
        le=PARTITIONS_MAX,
        description="Partitions of the changes topic at creation.",
    )
    replication: int | None = Field(
        default=None,
        ge=1,
        le=32767,
        description="Copies of each topic at creation; default: 3 from three brokers on, else 1.",
    )
    min_insync: int | None = Field(
        default=None,
        ge=1,
        le=32767,
        description="Copies that must have a record before it is acknowledged; default: 2 of three "
        "copies and more, else 1.",
    )

    grouping: Literal["planner", "single"] = Field(
        default="planner", description="How transactions are grouped for execution."
    )
    gear: Literal["micro-batch", "both"] = Field(
        default="both",
        description="Queries of a pipeline; both: a real-time one too, where it can be.",
    )
    id_window: int = Field(
        default=ID_WINDOW_DEFAULT,
        ge=1,
        le=2**31,
        description="For how many seqs an id is remembered; fixed for good.",
    )
    digest_interval: int = Field(
        default=DIGEST_INTERVAL_DEFAULT,
        ge=DIGEST_INTERVAL_MIN,
        le=2**31,
        description="Transactions from one digest of the state to the next; fixed for good.",
    )
    max_offsets_per_trigger: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Most transactions read in one micro-batch; "
        "default: 200,000 with one shard, 400,000 with more.",
    )
    finish_batch_s: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="How long a pipeline that is told to stop may take to finish its batch.",
    )
    class_data: bool = Field(
        default=True, description="`up` has archived, once and idly, what Java loads."
    )
    procedures: Path | None = Field(
        default=None,
        description="Folder with the modules of stored procedures; default: in the home.",
    )
    marker_interval_ms: int = Field(
        default=50, ge=1, le=60_000, description="Least time between two rounds of epoch markers."
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65535, description="Port of the Prometheus metrics; none by default."
    )
    metrics_host: str = Field(
        default="127.0.0.1", description="The address that the metrics are served on."
    )

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How clients speak to Kafka."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        default=None, description="How clients prove who they are."
    )
    sasl_username: str | None = Field(default=None, description="The user name of SASL.")
    sasl_password_file: Path | None = Field(
        default=None, description="A file with SASL's password."
    )
    ssl_ca_file: Path | None = Field(
        default=None, description="PEM file with the authorities to trust; default: the system's."
    )
    ssl_certificate_file: Path | None = Field(
        default=None, description="PEM file: client certificate."
    )
    ssl_key_file: Path | None = Field(
        default=None, description="PEM file: its private key, PKCS #8."
    )
    ssl_key_password_file: Path | None = Field(
        default=None, description="A file with the private key's password."
    )

    @field_validator("database")
    @classmethod
    def _check_database(cls, name: str) -> str:
        """Refuse a name that could not begin a topic's name or a folder's."""
        if not DATABASE_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be a database's name: take a lower-case letter, then up to 47 "
                "lower-case letters, digits and hyphens"
            )
        return name

    @field_validator("bootstrap")
    @classmethod
    def _check_bootstrap(cls, addresses: str | None) -> str | None:
        """Refuse addresses that no client could use."""
        for address in (addresses or "").split(",") if addresses is not None else []:
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
                raise ValueError(
                    f"{address!r} is not an address of a Kafka broker: write host:port, several "
                    "of them separated by commas"
                )
        return addresses

    @model_validator(mode="after")
    def _check_together(self) -> Settings:
        """Refuse settings that contradict each other."""
        if (self.min_insync or 1) > (self.replication or self.min_insync or 1):
            raise ValueError(
                f"min_insync {self.min_insync} is above replication {self.replication}: no record "
                "could ever be acknowledged"
            )
        sasl = (self.sasl_mechanism, self.sasl_username, self.sasl_password_file)
        if self._uses_sasl and None in sasl:
            raise ValueError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism, sasl_username "
                "and sasl_password_file"
            )
        if not self._uses_sasl and any(part is not None for part in sasl):
            raise ValueError(
                "the sasl_ settings need security_protocol SASL_SSL or SASL_PLAINTEXT, it is "
                f"{self.security_protocol}"
            )
        tls = (
            self.ssl_ca_file, self.ssl_certificate_file, self.ssl_key_file,
            self.ssl_key_password_file,
        )  # fmt: skip
        if not self._uses_ssl and any(part is not None for part in tls):
            raise ValueError(
                "the ssl_ settings need security_protocol SSL or SASL_SSL, it is "
                f"{self.security_protocol}: nothing would be encrypted"
            )
        if (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            raise ValueError("ssl_certificate_file and ssl_key_file belong together: give both")
        return self

    @property
    def _uses_sasl(self) -> bool:
        """True if clients authenticate with a user name and a password."""
        return self.security_protocol.startswith("SASL_")

    @property
    def _uses_ssl(self) -> bool:
        """True if clients encrypt."""
        return self.security_protocol.endswith("SSL")

    @property
    def broker_file(self) -> Path:
        """The file to which the embedded broker writes its address while it runs."""
        return self.home / "broker.json"

    @property
    def bootstrap_servers(self) -> str:
        """Return the brokers' addresses: as given, else the embedded broker's, else the default.
        Raises BrokerFileError: the embedded broker's cannot be read.
        """
        if self.bootstrap is not None:
            return self.bootstrap
        try:
            found = json.loads(self.broker_file.read_bytes())
        except FileNotFoundError:
            return BOOTSTRAP_DEFAULT
        except (OSError, ValueError) as error:
            raise BrokerFileError(
                f"{self.broker_file} cannot be read ({error}): run `streamydb down`, then "
                "`streamydb up`, or name the brokers with STREAMYDB_BOOTSTRAP"
            ) from error
        address = found.get("bootstrap") if isinstance(found, dict) else None
        return address if isinstance(address, str) else BOOTSTRAP_DEFAULT

    def client_config(self) -> ClientConfig:
        """Return the connection settings for confluent-kafka, secrets read from their files.
        Raises SecretFileError: a file that the settings name cannot be read.
        """
        config = ClientConfig({"bootstrap.servers": self.bootstrap_servers})
        if self.security_protocol != "PLAINTEXT":
            config["security.protocol"] = self.security_protocol
        if self._uses_sasl:
            config["sasl.mechanism"] = str(self.sasl_mechanism)
            config["sasl.username"] = str(self.sasl_username)
            config["sasl.password"] = _secret(self.sasl_password_file)
        if self._uses_ssl:
            _put_file(config, "ssl.ca.pem", self.ssl_ca_file)
            _put_file(config, "ssl.certificate.pem", self.ssl_certificate_file)
            _put_file(config, "ssl.key.pem", self.ssl_key_file)
            _put_file(config, "ssl.key.password", self.ssl_key_password_file)
        return config

    def spark_options(self) -> ClientConfig:
        """Return the same connection settings as options of Spark's Kafka source and sink.

        Certificates are passed by content, so that executors need not have the files. Raises
        SecretFileError: a file that the settings name cannot be read.
        """
        options = ClientConfig({"kafka.bootstrap.servers": self.bootstrap_servers})
        if self.security_protocol != "PLAINTEXT":
            options["kafka.security.protocol"] = self.security_protocol
        if self._uses_sasl:
            options["kafka.sasl.mechanism"] = str(self.sasl_mechanism)
            options["kafka.sasl.jaas.config"] = self._jaas()
        if self._uses_ssl:
            _put_file(options, "kafka.ssl.truststore.certificates", self.ssl_ca_file)
            _put_file(options, "kafka.ssl.keystore.certificate.chain", self.ssl_certificate_file)
            _put_file(options, "kafka.ssl.keystore.key", self.ssl_key_file)
            _put_file(options, "kafka.ssl.key.password", self.ssl_key_password_file)
            if self.ssl_ca_file is not None:
                options["kafka.ssl.truststore.type"] = "PEM"
            if self.ssl_key_file is not None:
                options["kafka.ssl.keystore.type"] = "PEM"
        return options

    def _jaas(self) -> str:
        """Return the login line of Java clients."""
        module = _JAAS_MODULES[str(self.sasl_mechanism)]
        name = _jaas_quoted(str(self.sasl_username))
        password = _jaas_quoted(_secret(self.sasl_password_file))
        return f"{module} required username={name} password={password};"


def _jaas_quoted(text: str) -> str:
    """Quote a value of a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _secret(path: Path | None) -> str:
    """Read a file that the settings name, without its last line break."""
    if path is None:
        raise SecretFileError("a secret's file is missing in the settings")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecretFileError(
            f"{os.fspath(path)}, which the settings name, cannot be read: {reason}"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _put_file(config: ClientConfig, option: str, path: Path | None) -> None:
    """Set an option to a file's content, if the settings name the file."""
    if path is None:
        return
    config[option] = _secret(path)
    if not option.endswith("password") and _PEM not in config[option]:
        raise SecretFileError(
            f"{os.fspath(path)}, which the settings name, is no PEM file: it has no line that "
            f"begins with {_PEM!r}"
        )
