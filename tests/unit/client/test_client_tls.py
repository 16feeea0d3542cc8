"""The client and a facade with TLS: who is trusted, and what is said when somebody is not."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from streamydb.client import ClientError, NotConnectedError, connect, connect_async
from streamydb.errors import ConfigurationError
from streamydb.facade import FacadeSettings
from tests.support.served import serving

LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates; `file` holds its own, for those who trust it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.file = folder / "authority.pem"
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name.from_rfc4514_string(f"CN={folder.name}")
        made = self._build(self._key, self._name, DAY)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._write(self.file, made.add_extension(constraints, critical=True))

    def settings(
        self, name: x509.GeneralName = LOOPBACK, valid: dt.timedelta = DAY
    ) -> FacadeSettings:
        """The settings of a facade with a new certificate of this name, valid so much longer."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._build(key, x509.Name.from_rfc4514_string("CN=facade"), valid)
        certificate, key_file = self._folder / "facade.pem", self._folder / "facade.key"
        names = x509.SubjectAlternativeName([name])
        self._write(certificate, made.add_extension(names, critical=False))
        form = serialization.PrivateFormat.PKCS8
        pem = serialization.Encoding.PEM
        key_file.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        return FacadeSettings(port=0, tls_certificate_file=certificate, tls_key_file=key_file)

    def _build(
        self, key: ec.EllipticCurvePrivateKey, name: x509.Name, valid: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name, subject_name=name, public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - 2 * DAY, not_valid_after=now + valid,
        )  # fmt: skip

    def _write(self, path: Path, made: x509.CertificateBuilder) -> None:
        signed = made.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


class Parties(NamedTuple):
    """A facade and the file of its authority, and that of a stranger."""

    address: str
    authority: Path
    stranger: Path


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    folder = tmp_path_factory.mktemp("tls")
    known, stranger = Authority(folder / "known"), Authority(folder / "stranger")
    with serving(known.settings()) as facade:
        yield Parties(facade.url, known.file, stranger.file)


def refusals(url: str, verify: bool | Path) -> list[str]:  # noqa: FBT001 - as in connect
    """What both drivers say, with time to try again that they do not take."""
    with connect(url, verify=verify, timeout_s=60) as client:
        with pytest.raises(NotConnectedError) as refused:
            client.get("a")
        with pytest.raises(NotConnectedError) as unwatched, client.watch(since=0) as watch:
            next(watch)

    async def ask() -> str:
        async with connect_async(url, verify=verify, timeout_s=60) as client:
            with pytest.raises(NotConnectedError) as refused:
                await client.put("a", 1)
        assert not refused.value.retriable
        return str(refused.value)

    return [str(refused.value), str(unwatched.value), asyncio.run(ask())]


def test_who_trusts_the_authority_reads_writes_and_watches(parties: Parties) -> None:
    context = ssl.create_default_context(cafile=parties.authority)
    for verify in (parties.authority, str(parties.authority), context, False):
        with connect(parties.address, verify=verify) as client, client.watch() as changes:
            made = client.put("a", [1])
            assert client.get("a") == [1]
            assert next(changes).seq == made.seq

    async def scenario() -> None:
        connected = connect_async(parties.address, verify=parties.authority)
        async with connected as client, client.watch() as changes:
            made = await client.put("a", [2])
            assert await client.get("a") == [2]
            assert (await anext(changes)).seq == made.seq

    asyncio.run(scenario())


def test_a_child_of_a_fork_says_nothing_on_the_connections_of_its_parent(tmp_path: Path) -> None:
    """Neither the end of TLS nor that of the socket, whether it uses the client or closes it."""
    authority = Authority(tmp_path / "known")
    with (
        serving(authority.settings()) as facade,
        connect(facade.url, verify=authority.file) as client,
        client.watch() as changes,
    ):
        client.put("a", 1)
        assert next(changes).value == 1
        before = {id(connection) for connection in facade.connections}
        for used in (True, False):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    shown = client.get("a") if used else 1
                    changes.close()
                    client.close()
                    code = 0 if shown == 1 else 2
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0
        client.put("a", 2)
        assert next(changes).value == 2
        assert client.get("a") == 2
        assert before <= {id(connection) for connection in facade.connections}


def test_an_authority_that_is_not_the_facades_is_named_as_the_trouble(parties: Parties) -> None:
    for verify in (parties.stranger, True):
        for said in refusals(parties.address, verify):
            assert said.startswith("The facade's certificate is not trusted: ")
            assert "verify=file" in said


def test_a_certificate_of_another_host_or_of_the_past_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "known")
    with serving(authority.settings(x509.DNSName("elsewhere.example"))) as facade:
        for said in refusals(facade.url, authority.file):
            assert "IP address mismatch" in said
    with serving(authority.settings(valid=-DAY)) as facade:
        for said in refusals(facade.url, authority.file):
            assert "certificate has expired" in said


def test_https_and_http_are_not_mixed_up(parties: Parties) -> None:
    with serving() as facade:
        for said in refusals(facade.url.replace("http", "https"), parties.authority):
            assert "does it serve https at this port?" in said
    plain = parties.address.replace("https", "http")
    with connect(plain, timeout_s=0.1) as client, pytest.raises(ClientError, match="broke"):
        client.get("a")


def test_a_file_without_certificates_is_refused_at_once(parties: Parties, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    with pytest.raises(ConfigurationError, match="has no certificates to trust"):
        connect(parties.address, verify=empty)
    with pytest.raises(ConfigurationError, match="is no file of certificates"):
        connect(parties.address, verify=tmp_path / "missing.pem")
