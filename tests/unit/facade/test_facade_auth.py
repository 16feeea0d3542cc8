"""Who may do what: tokens, scopes per prefix, refusing to be open to others, secrecy."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamydb.errors import ConfigurationError
from streamydb.facade import FacadeSettings, create_app, load_tokens
from streamydb.facade.server import checked, listen, make_server
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.support.tokens import ADMIN, READER, TOKENS, bearer, connect, settings_of


@scenario
async def test_other_web_sites_that_the_settings_name_may_send_requests() -> None:
    origin = {"origin": "https://app.example"}
    settings = settings_of(cors_origins=("https://app.example",))
    database = MemoryDatabase()
    app = create_app(database.model, database.log, database.changes, settings)
    async with InProcess(app) as client:
        asked = {**origin, "access-control-request-method": "PUT"}
        allowed = await client.request("OPTIONS", "/v1/kv/a", b"", asked)
        assert (allowed.status, allowed.body) == (204, b"")
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "PUT" in allowed.headers["access-control-allow-methods"]
        assert "Authorization" in allowed.headers["access-control-allow-headers"]
        for token, status in ((ADMIN, 200), ("wrong-token-hush", 401)):
            answer = await client.request("PUT", "/v1/kv/a", b"1", {**origin, **bearer(token)})
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert "ETag" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"].endswith("Origin")
        for other in ("https://evil.example", "https://app.example.evil", "http://app.example"):
            answer = await client.request("OPTIONS", "/v1/kv/a", b"", {**asked, "origin": other})
            assert answer.problem == "cross-origin"
            assert "access-control-allow-origin" not in answer.headers
        same = {"origin": "http://127.0.0.1:8080", **bearer(ADMIN)}
        own = await client.request("GET", "/v1/kv/a", b"", same)
        assert "access-control-allow-origin" not in own.headers


@pytest.mark.parametrize(
    ("origin", "host"),
    [("https://app.example", "app.example:443"), ("http://app.example", "App.Example:80"),
     ("http://app.example:8080", "app.example:8080"), ("http://[::1]", "[::1]:80")],
)  # fmt: skip
@scenario
async def test_a_proxy_may_add_the_usual_port_to_the_host(origin: str, host: str) -> None:
    async with connect(MemoryDatabase()) as client:
        sent = {"origin": origin, "host": host, **bearer(ADMIN)}
        assert (await client.request("PUT", "/v1/kv/a", b"1", sent)).status == 200
        other = {**sent, "host": host.rpartition(":")[0] + ":81"}
        assert (await client.request("PUT", "/v1/kv/a", b"1", other)).problem == "cross-origin"


@scenario
async def test_names_in_the_settings_may_have_capitals() -> None:
    settings = settings_of(allowed_hosts=("Db.Example",), cors_origins=("https://App.Example",))
    database = MemoryDatabase()
    app = create_app(database.model, database.log, database.changes, settings)
    async with InProcess(app) as client:
        sent = {"host": "db.example:8080", "origin": "https://app.example", **bearer(ADMIN)}
        assert (await client.request("PUT", "/v1/kv/a", b"1", sent)).status == 200


@scenario
async def test_a_token_may_have_any_characters() -> None:
    token = "Schlüssel-0123456789"  # noqa: S105 - a test
    settings = settings_of([{"name": "app", "token": token, "read": [""]}])
    database = MemoryDatabase()
    app = create_app(database.model, database.log, database.changes, settings)
    async with InProcess(app) as client:
        sent = bearer(token.encode().decode("latin-1"))  # as curl sends it, in UTF-8
        assert (await client.request("GET", "/v1/kv", headers=sent)).status == 200


@pytest.mark.parametrize("origin", ["*", "app.example", "https://app.example/", "null"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        FacadeSettings(cors_origins=(origin,))


@pytest.mark.fault(26, "no token, wrong tokens", "401")
@pytest.mark.parametrize(
    "headers",
    [{}, bearer("wrong"), bearer(""), {"Authorization": ADMIN}, {"Authorization": f"Basic {ADMIN}"},
     bearer(ADMIN + "x"), bearer(ADMIN[:-1]), bearer("\xff")],
)  # fmt: skip
@scenario
async def test_without_a_good_token_nothing_is_served(headers: dict[str, str]) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        for method, target in [
            ("GET", "/v1/kv/a"), ("PUT", "/v1/kv/a"), ("DELETE", "/v1/kv/a"), ("GET", "/v1/kv"),
            ("POST", "/v1/read"), ("POST", "/v1/transactions"), ("GET", "/v1/transactions/a"),
            ("GET", "/v1/changes"), ("GET", "/v1/limits"), ("GET", "/metrics"),
        ]:  # fmt: skip
            answer = await client.request(method, target, b"{}", headers)
            assert (answer.status, answer.problem) == (401, "unauthorized"), target
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for target in ("/health/live", "/health/ready", "/schema", "/problems"):
            assert (await client.request("GET", target, headers=headers)).status == 200
    assert database.log.records == []


def test_the_tokens_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(TOKENS), encoding="utf-8")
    tokens = load_tokens(FacadeSettings(tokens_file=path))
    assert tokens.identify(f"Bearer {ADMIN}").name == "admin"
    assert tokens.identify(f"bearer {READER}").may_read("acct/1")


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMYDB_SERVE_TOKENS", json.dumps(TOKENS))
    monkeypatch.setenv("STREAMYDB_SERVE_PORT", "9999")
    settings = FacadeSettings()
    assert settings.port == 9999
    assert load_tokens(settings)
    assert ADMIN not in repr(settings)


@pytest.mark.parametrize(
    "tokens",
    [{}, [], "x", [{"name": "a"}], [{"name": "a", "token": "short"}],
     [{"name": "a", "token": ADMIN, "sha256": "00"}], [{"name": "a", "sha256": "zz"}],
     [{"name": "a", "sha256": "00"}], [{"name": "a", "token": ADMIN, "admin": True}],
     [{"token": ADMIN}], [{"name": "a", "token": ADMIN, "read": "x"}]],
)  # fmt: skip
def test_tokens_that_make_no_sense_are_not_shown(tokens: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_tokens(settings_of(tokens))
    text = "".join(traceback.format_exception(caught.value))
    assert ADMIN not in str(caught.value)
    assert "STREAMYDB_SERVE_TOKENS" in text


def test_a_missing_tokens_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_tokens(FacadeSettings(tokens_file=tmp_path / "none"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "db.example"])  # noqa: S104
def test_off_loopback_there_must_be_tokens(host: str, caplog: pytest.LogCaptureFixture) -> None:
    database = MemoryDatabase()
    settings = FacadeSettings(host=host)
    with pytest.raises(ConfigurationError, match="needs tokens"):
        checked(settings)
    with pytest.raises(ConfigurationError, match="needs tokens"):
        make_server(settings, database.model, database.log, database.changes)
    assert checked(settings_of(host=host)).allowed_hosts is None
    assert "without TLS" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_only_loopback_names_are_answered_for(host: str) -> None:
    assert host in (checked(FacadeSettings(host=host)).allowed_hosts or ())
    assert checked(settings_of(host=host)).allowed_hosts is None


@pytest.mark.fault(26, "a foreign Host header", "refused")
@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8080", 200), ("127.0.0.1", 200), ("[::1]:8080", 200), ("evil.example", 421),
     ("evil.example:8080", 421), ("", 421), ("127.0.0.1.evil.example", 421), ("[", 400),
     ("[::1", 400), ("[x]", 400), ("\xbd", 400), ("127.0.0.1:abc", 400), ("a b", 400)],
)  # fmt: skip
@scenario
async def test_a_rebound_host_name_is_refused(host: str, status: int) -> None:
    database = MemoryDatabase()
    settings = checked(FacadeSettings())
    async with InProcess(
        create_app(database.model, database.log, database.changes, settings)
    ) as client:
        answer = await client.request("GET", "/v1/limits", headers={"host": host})
        assert answer.status == status
        problems = {400: "invalid-parameter", 421: "misdirected"}
        assert status == 200 or answer.problem == problems[status]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:9090", "http://[", "http://[x]",
     "http://\xbd"],
)  # fmt: skip
@scenario
async def test_other_web_sites_are_refused(origin: str) -> None:
    database = MemoryDatabase()
    async with InProcess(
        create_app(database.model, database.log, database.changes, FacadeSettings())
    ) as client:
        answer = await client.request("POST", "/v1/transactions", b"{}", {"origin": origin})
        assert (answer.status, answer.problem) == (403, "cross-origin")
        same = {"origin": "http://127.0.0.1:8080"}
        assert (await client.request("POST", "/v1/transactions", b"{}", same)).status == 200
    assert len(database.log.records) == 1


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="belong together"):
        FacadeSettings(tls_key_file=tmp_path / "key.pem")
    with pytest.raises(ValidationError, match="not both"):
        settings_of(tokens_file=tmp_path / "tokens.json")


def test_certificates_that_are_none(tmp_path: Path) -> None:
    database = MemoryDatabase()
    for content in (None, "not PEM"):
        for name in ("cert.pem", "key.pem"):
            if content is not None:
                (tmp_path / name).write_text(content, encoding="utf-8")
        settings = FacadeSettings(
            tls_certificate_file=tmp_path / "cert.pem", tls_key_file=tmp_path / "key.pem"
        )
        with pytest.raises(ConfigurationError, match="no usable certificate"):
            make_server(settings, database.model, database.log, database.changes)


def test_an_address_that_is_taken() -> None:
    with listen(FacadeSettings(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigurationError, match="cannot be listened on"):
            listen(FacadeSettings(port=port))


@pytest.mark.fault(
    26,
    "keys, values and tokens in requests",
    "none in logs or problems, but for "
    "a field of a refused transaction in the answer to its sender",
)
@scenario
async def test_no_key_value_or_token_is_logged_or_echoed() -> None:
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(self.format(record))

    handler = Keep()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    database = MemoryDatabase()
    answers = []
    try:
        async with connect(database, read_timeout_s=0.02) as client:
            for token in (ADMIN, READER, "wrong-token-hush"):
                for method, target, body in [
                    ("PUT", "/v1/kv/hush-key", b'"hush-value"'),
                    ("GET", "/v1/kv/hush-key", b""),
                    ("GET", "/v1/kv/hush-key?at=hush", b""),
                    ("GET", "/v1/kv/hush-key?hush=hush", b""),
                    ("GET", "/v1/kv/hush-key?at=99", b""),
                    ("PUT", "/v1/kv/hush-key", b'{"hush": nul'),
                    ("POST", "/v1/transactions", b'{"updates": ["hush-value"], "hush": 1'),
                    ("POST", "/v1/read", b'{"keys": ["hush"], "hush": 1}'),
                    ("GET", "/v1/kv?cursor=hush", b""),
                    ("GET", "/hush", b""),
                    ("PATCH", "/v1/kv/hush-key", b"hush"),
                    ("GET", "/v1/changes?since=hush", b""),
                ]:
                    answer = await client.request(method, target, body, bearer(token))
                    if answer.status >= 400:
                        answers.append(answer)
            database.model.broken = True
            answers.append(await client.request("GET", "/v1/kv/hush-key", b"", bearer(ADMIN)))
            database.model.broken = False
            database.model.latest = lambda: 1 / 0  # type: ignore[assignment, return-value]
            answers.append(await client.request("GET", "/v1/kv/hush-key", b"", bearer(ADMIN)))
            assert answers[-1].problem == "internal"
            metrics = (await client.request("GET", "/health/live")).body
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert len(records) > 30
    assert any("ZeroDivisionError" in record for record in records)
    for text in (*records, metrics.decode()):
        assert "hush" not in text
        assert ADMIN not in text
    for answer in answers:
        shown = answer.body + repr(answer.headers).encode()
        assert b"hush" not in shown
        assert ADMIN.encode() not in shown
