"""A broker that lets nobody in without TLS and a password, and may check what each user does."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from streamydb.local.broker import EmbeddedBroker, find_broker
from streamydb.local.broker.embedded import write_record
from streamydb.local.file_lock import file_lock, write_whole
from streamydb.settings import Settings

ADMIN = "admin"
SECURED = "secured"
"""Where the broker lies, in the folder of a run, that all of its tests may share."""
DAY = dt.timedelta(days=1)


def secret_of(user: str) -> str:
    """The password of a user: easy to search for in logs, and with what needs quoting."""
    return f'verysecret-{user}-"\\;='


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; the one of a folder is the same for all processes."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        """Make the authority's own certificate, or take the one that the folder has."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file, kept = folder / "authority.pem", folder / "authority.key"
        if kept.exists():
            self._key: Any = serialization.load_pem_private_key(kept.read_bytes(), None)
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        built = self._builder(self._name, self._key.public_key(), DAY, DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        signed = built.sign(self._key, hashes.SHA256())
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        kept.write_bytes(_in_pem(self._key))

    def issue(
        self,
        name: str,
        *,
        age: dt.timedelta = DAY,
        left: dt.timedelta = DAY,
        host: str = "127.0.0.1",
    ) -> Issued:
        """Sign a certificate for `host`; with `left` below zero it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        built = self._builder(subject, key.public_key(), age, left)
        signed = built.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(_in_pem(key))
        return issued

    def _builder(
        self, subject: x509.Name, key: Any, age: dt.timedelta, left: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - age)
            .not_valid_after(now + left)
        )


class Secured:
    """A broker that speaks SASL_SSL, with users of both mechanisms.

    Args:
        folder: where everything lies.
        plain: users of PLAIN, who must be known at the start.
        acls: whether users may only do what they were granted; the admin may do all.
        certificate: the broker's; one that is in order by default.
        client_auth: Kafka's ssl.client.auth: none, requested or required.

    """

    def __init__(
        self,
        folder: Path,
        plain: Iterable[str] = (),
        *,
        acls: bool = False,
        certificate: Issued | None = None,
        client_auth: str = "none",
    ) -> None:
        """Nothing is started yet."""
        self.folder = folder
        self.authority = Authority(folder / "tls")
        self._own = certificate or self.authority.issue("broker")
        self._users = [ADMIN, *plain]
        self._client_auth = client_auth
        client = {
            name: value
            for name, value in self.settings(ADMIN, bootstrap="x:1").client_config().items()
            if name != "bootstrap.servers"
        }
        if client_auth == "required":
            own = self.authority.issue("probe")
            client |= {
                "ssl.certificate.pem": own.certificate.read_text(),
                "ssl.key.pem": own.key.read_text(),
            }
        properties = self._properties() | (_ACLS if acls else {})
        self.broker = EmbeddedBroker(
            folder / "home", heap_mb=512, properties=properties, client=client, start_timeout_s=60
        )

    def settings(self, user: str, mechanism: str = "PLAIN", **more: Any) -> Settings:
        """The settings of a user; `more` wins."""
        password = self.folder / f"{user}.password"
        write_whole(password, f"{secret_of(user)}\n".encode(), synced=False)
        given: dict[str, Any] = {
            "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, "sasl_username": user,
            "sasl_password_file": password, "ssl_ca_file": self.authority.file,
            "home": self.folder / "home",
        } | more  # fmt: skip
        if "bootstrap" not in given:
            given["bootstrap"] = self.broker.bootstrap
        return Settings(**given)

    def environment(self, settings: Settings) -> dict[str, str]:
        """The same settings as the environment of a process: files, no secrets."""
        names = (
            "database", "bootstrap", "security_protocol", "sasl_mechanism", "sasl_username",
            "sasl_password_file", "ssl_ca_file", "ssl_certificate_file", "ssl_key_file",
        )  # fmt: skip
        given = {name: getattr(settings, name) for name in names}
        return {f"STREAMYDB_{n.upper()}": str(v) for n, v in given.items() if v is not None}

    def add_scram(self, users: Sequence[str], mechanism: str = "SCRAM-SHA-512") -> None:
        """Give users a password in Kafka's own metadata, and wait until they can come in.

        The controller answers before the broker has read what it wrote.
        """
        kind = ScramMechanism[mechanism.replace("-", "_")]
        admin = AdminClient(dict(self.broker.client))
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(kind, 4096), secret_of(user).encode()
            )
            for user in users
        ]
        for future in admin.alter_user_scram_credentials(wanted).values():
            future.result(30)
        for user in users:
            AdminClient(self.settings(user, mechanism).client_config()).list_topics(timeout=30)

    def _properties(self) -> dict[str, str]:
        users = " ".join(f"user_{name}={_quoted(secret_of(name))}" for name in self._users)
        own = f"username={_quoted(ADMIN)} password={_quoted(secret_of(ADMIN))}"
        security = "org.apache.kafka.common.security"
        scram = f"{security}.scram.ScramLoginModule required;"
        return {
            "listener.security.protocol.map": "BROKER:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.broker.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.broker.plain.sasl.jaas.config":
                f"{security}.plain.PlainLoginModule required {own} {users};",
            "listener.name.broker.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.broker.scram-sha-512.sasl.jaas.config": scram,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _one_line(self._own.certificate),
            "ssl.keystore.key": _one_line(self._own.key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _one_line(self.authority.file),
            "listener.name.broker.ssl.client.auth": self._client_auth,
            # The broker's own connections show no certificate that names its address otherwise.
            "ssl.endpoint.identification.algorithm": "https",
        }  # fmt: skip


def shared(folder: Path, plain: Iterable[str], scram: Mapping[str, str]) -> Secured:
    """The broker of a folder, for all processes; the first that asks for it starts it.

    It checks what each user may do, and runs until somebody calls `stop_detached(folder / "home")`.

    Args:
        folder: where everything lies.
        plain: users of PLAIN.
        scram: other users, each with its mechanism.
    """
    with file_lock(folder / "shared.lock"):
        found = Secured(folder, plain, acls=True)
        broker = found.broker
        if find_broker(broker.home) is None:
            broker.start()
            for user, mechanism in scram.items():
                found.add_scram([user], mechanism)
            write_record(broker.home, broker.release())
    return found


_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener, which only the broker itself reaches, knows no users.
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _in_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _one_line(path: Path) -> str:
    return path.read_text().strip()
