"""The settings of a facade, and its limits; nothing is read before it is constructed."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streamydb.limits import DEADLINE_AHEAD_MS_MAX, TRANSACTION_BYTES_MAX

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Names under which a facade on the loopback interface may be addressed."""


_ORIGIN: Final = re.compile(r"https?://[^/?#*,\s]+")
_HOST: Final = re.compile(r"[a-z0-9_.-]+")
_INCOMPLETE_MARGIN_BYTES: Final = 8_192


def _count(default: int, text: str, least: int = 1) -> Any:
    return Field(default=default, ge=least, description=text)


def _seconds(default: float, text: str) -> Any:
    return Field(default=default, gt=0, description=text)


class FacadeSettings(BaseSettings):
    """Each can be given as an argument or as an environment variable STREAMYDB_SERVE_<NAME>."""

    model_config = SettingsConfigDict(
        env_prefix="STREAMYDB_SERVE_", frozen=True, extra="forbid", env_ignore_empty=True
    )

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="The port to listen on.")
    tokens: SecretStr | None = Field(default=None, description="Tokens and their scopes, JSON.")
    tokens_file: Path | None = Field(default=None, description="A file with the same JSON.")
    tls_certificate_file: Path | None = Field(default=None, description="PEM: certificate chain.")
    tls_key_file: Path | None = Field(default=None, description="PEM: its private key.")
    allowed_hosts: tuple[str, ...] | None = Field(
        default=None,
        description="Host names to answer for, a JSON list; default: any with tokens, else those "
        "of this machine.",
    )

    cors_origins: tuple[str, ...] = Field(
        default=(), description="Origins (https://host) whose pages may send requests, too; JSON."
    )

    traces: Literal["off", "otlp"] = Field(
        default="off", description="Traces; otlp: to OTEL_EXPORTER_OTLP_ENDPOINT."
    )

    connections_max: int = _count(4_000, "Connections at once.")
    client_connections_max: int = _count(
        1_000, "The same, of one address (a proxy is one as well)."
    )
    idle_s: int = _count(
        75, "Seconds an idle connection is kept; a proxy in front must keep it for less."
    )
    requests_max: int = _count(4_000, "Requests served at once.")
    in_flight_max: int = _count(1_000, "Transactions waited for.")
    client_in_flight_max: int = _count(500, "The same, of one client.")
    waiters_max: int = _count(1_000, "Reads that wait at once.")
    streams_max: int = _count(200, "Event streams and waits for streams, at once.")
    client_streams_max: int = _count(50, "The same, of one client.")
    catch_ups_max: int = _count(4, "Readers of old changes, and of old streams.")
    searches_max: int = _count(4, "Searches of old results at once.")
    client_searches_max: int = _count(2, "The same, of one client.")
    body_bytes_max: int = _count(TRANSACTION_BYTES_MAX, "Bytes of a request's body.")
    bodies_bytes_max: int = _count(67_108_864, "Bytes of all bodies held at once.")
    header_bytes_max: int = _count(16_384, "Bytes of all headers.", 256)
    target_bytes_max: int = _count(8_192, "Bytes of path and query.", 256)
    stream_bytes_max: int = _count(16_777_216, "Bytes of changes kept for readers, and of streams.")
    results_bytes_max: int = _count(16_777_216, "Bytes of results kept for later questions.")
    pending_max: int = _count(100_000, "Ids whose place in the log is kept.")
    page_entries_max: int = _count(1_000, "Entries in a page of a list.")
    answer_bytes_max: int = _count(4_194_304, "Bytes of values in one answer.")
    compressed_bytes_min: int = _count(
        65_536, "Bytes from which on an answer is compressed (gzip)."
    )
    read_keys_max: int = _count(1_000, "Keys of one POST /v1/read.")

    queries_max: int = _count(4, "SQL queries at once; 0: none at all.", 0)
    client_queries_max: int = _count(2, "The same, of one client.")
    query_memory_bytes_max: int = _count(536_870_912, "Bytes of memory of a query.", 33_554_432)
    query_threads_max: int = _count(2, "Threads of a query.")
    query_rows_max: int = _count(10_000, "Rows of a query's answer.")

    verdict_timeout_s: float = _seconds(30, "Wait for a verdict.")
    deadline_s: float = Field(
        default=60,
        gt=0,
        le=DEADLINE_AHEAD_MS_MAX / 2_000,
        description="Deadline of a write without one; until then it may be sent again.",
    )
    append_timeout_s: float = _seconds(10, "Wait for a durable append.")
    read_timeout_s: float = _seconds(10, "Wait of a read.")
    head_timeout_s: float = _seconds(
        10, "Wait for a request's line and headers, and before that for a TLS handshake."
    )
    query_timeout_s: float = _seconds(10, "Time of a query.")
    body_timeout_s: float = _seconds(30, "Wait for a request's body.")
    send_timeout_s: float = _seconds(30, "Wait for a reader to read.")
    heartbeat_s: float = _seconds(15, "Pause between heartbeats.")
    tick_s: float = Field(
        default=0.5, ge=0, description="Pause between looks whether a key has ended; 0: none."
    )
    poll_s: float = _seconds(0.01, "Longest pause between looks at the read model.")

    @field_validator("allowed_hosts", "cors_origins")
    @classmethod
    def _as_sent(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(map(str.lower, names))

    @model_validator(mode="after")
    def _check_together(self) -> FacadeSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file belong together: give both")
        if self.tokens is not None and self.tokens_file is not None:
            raise ValueError("give tokens or tokens_file, not both")
        if self.allowed_hosts is not None and not all(map(_is_host, self.allowed_hosts or ("",))):
            raise ValueError(
                "allowed_hosts are one or more names or addresses without a port, such as "
                "db.example; others than ASCII as xn--…"
            )
        if not all(map(_ORIGIN.fullmatch, self.cors_origins)):
            raise ValueError("cors_origins are as https://app.example or http://localhost:3000")
        return self

    @property
    def incomplete_bytes_max(self) -> int:
        """Bytes of a request that are held before its head is whole."""
        return self.header_bytes_max + self.target_bytes_max + _INCOMPLETE_MARGIN_BYTES

    @property
    def on_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def scheme(self) -> str:
        return "http" if self.tls_key_file is None else "https"

    @property
    def local_url(self) -> str:
        """The address, without a port, at which programs on this machine reach the facade."""
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return f"{self.scheme}://{self.host}"
        if address.is_unspecified:  # all addresses of this machine
            address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
        return f"{self.scheme}://{address if address.version == 4 else f'[{address}]'}"

    def limits(self) -> dict[str, float]:
        ends = ("_max", "_s")
        return {n: v for n, v in self.model_dump().items() if n.endswith(ends)}


def _is_host(name: str) -> bool:
    """Return True if a header Host may have the name: there an IPv6 address is in brackets."""
    if ":" not in name:
        return _HOST.fullmatch(name) is not None
    try:
        return ipaddress.ip_address(name).version == 6
    except ValueError:
        return False
