"""Variables of the environment: whatever they are, a client works,
or names the one that is wrong.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamydb import connect, connect_async
from streamydb.client import ClientConfigurationError, ClientError, connections
from streamydb.errors import ConfigurationError
from streamydb_layers.tables import dbapi
from tests.support.served import Served, serving

PROXIES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
PASSED = ["NO_PROXY", "no_proxy"]
FILES = ["SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"]
ALL = [*PROXIES, *PASSED, *FILES]
ODD = [
    "", " ", "*", ",", "http://", "http://[", "http://[::1", "http://h:port", "http://h:99999",
    "ftp://h:21", "socks5://h:1080", "socks4://h", "h", "h:3128", "http://u:p@h:3128", "://", "/",
    "http://h/path?x=1", "http://\u00e9.example", "http://\udcff", "\udcff", "http://a b",
    "localhost,fd07::/64", "[::1]", "::1", "10.0.0.0/8", "127.0.0.1:x", "/no/such/file", "/",
    ".", "a" * 5_000, "http://" + "a" * 300, "https://%zz", "http://u:\udcff@h",
]  # fmt: skip
ADDRESSES = ["http://localhost:1", "https://localhost:1", "http://[::1]:1", "https://db.example"]


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    """Have these variables, of those that there are, and no others."""
    before = {name: os.environ.pop(name) for name in ALL if name in os.environ}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ.update(before)


def _blocking(url: str, **options: Any) -> None:
    with connect(url, **options):
        pass


def _awaiting(url: str, **options: Any) -> None:
    async def connected() -> None:
        async with connect_async(url, **options):
            pass

    asyncio.run(connected())


def _dbapi(url: str, **options: Any) -> None:
    dbapi.connect(url, **options).close()


Kind = Callable[..., None]
KINDS: list[Kind] = [_blocking, _awaiting, _dbapi]


def is_about(name: str, url: str) -> bool:
    kind = name.lower().removesuffix("_proxy")
    scheme = url.partition(":")[0]
    return kind in {scheme, "all"} if name in PROXIES else scheme == "https" and name in FILES


def refusal(kind: Kind, url: str, names: Iterable[str]) -> Exception | None:
    """The error of a client; to read the authorities that all trust takes most of the time."""
    options = {} if {*FILES} & {*names} else {"verify": False}
    try:
        kind(url, **options)
    except ClientConfigurationError as error:
        return error
    return None


@pytest.fixture(autouse=True, scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keys of TLS are written into files, some with odd names."""
    with chdir(tmp_path_factory.mktemp("elsewhere")):
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_each_value_works_or_is_named(name: str, kind: Kind) -> None:
    for value in ODD:
        for url in ADDRESSES if kind is _blocking else ADDRESSES[:2]:
            with variables({name: value}):
                refused = refusal(kind, url, [name])
            is_named = name in str(refused) and is_about(name, url)
            assert refused is None or is_named, (name, value, url)


@settings(max_examples=60, deadline=None)
@example({"NO_PROXY": "localhost,fd07::/64", "ALL_PROXY": "socks5://h"}, "http://localhost:1")
@given(
    st.dictionaries(st.sampled_from(ALL), st.sampled_from(ODD) | st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)),
    st.sampled_from(ADDRESSES),
)  # fmt: skip
def test_any_values_together_work_or_one_is_named(given: dict[str, str], url: str) -> None:
    with variables(given):
        refused = refusal(_blocking, url, given)
    is_named = any(name in str(refused) and is_about(name, url) for name in given)
    assert refused is None or is_named


@pytest.mark.parametrize(
    ("passed", "url", "proxied"),
    [
        ("", "http://a.example", True),
        ("*", "http://a.example", False),
        ("b.example, *", "http://a.example", False),
        ("a.example", "http://a.example", False),
        ("A.Example", "http://a.example:80", False),
        ("a.example.", "http://a.example", False),
        ("example", "http://a.example", False),
        (".example", "http://a.example", False),
        (".a.example", "http://a.example", True),
        ("*.example", "http://a.example", False),
        ("ample", "http://a.example", True),
        ("a.example:80", "http://a.example", False),
        ("a.example:443", "http://a.example", True),
        ("a.example:443", "https://a.example", False),
        ("https://a.example", "http://a.example", True),
        ("all://a.example", "http://a.example", False),
        ("127.0.0.1", "http://127.0.0.1:8080", False),
        ("127.0.0.0/8", "http://127.9.9.9", False),
        ("127.0.0.0/8", "http://128.0.0.1", True),
        ("127.0.0.1:81", "http://127.0.0.1:80", True),
        ("0.0.1", "http://127.0.0.1", True),
        ("::1", "http://[::1]:8080", False),
        ("[::1]", "http://[::1]:8080", False),
        ("[::1]:8080", "http://[::1]:8080", False),
        ("[::1]:8081", "http://[::1]:8080", True),
        ("fd07::/64", "http://[fd07::9]", False),
        ("[fd07::]/64", "http://[fd07::9]", False),
        ("fd07::/64", "http://[fd08::9]", True),
        ("fd07::/64", "http://127.0.0.1", True),
        ("localhost,fd07::/64", "http://localhost:8080", False),
        ("[::1,http://[,:,%", "http://a.example", True),
    ],
)
def test_no_proxy_says_for_whom_there_is_none(
    passed: str, url: str, proxied: bool,  # noqa: FBT001 - of the table
) -> None:  # fmt: skip
    with variables({"ALL_PROXY": "proxy.example:3128", "NO_PROXY": passed}):
        found = connections.proxy_of(httpx.URL(url))
    assert (found is not None) == proxied
    assert found is None or str(found.url) == "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("given", "url", "proxy"),
    [
        ({"HTTP_PROXY": "http://p:1"}, "http://h", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://h", None),
        ({"HTTPS_PROXY": "https://p:1", "ALL_PROXY": "q:2"}, "https://h", "https://p:1"),
        ({"HTTPS_PROXY": "https://p:1", "ALL_PROXY": "q:2"}, "http://h", "http://q:2"),
        ({"http_proxy": "http://p:1", "HTTP_PROXY": "http://q:2"}, "http://h", "http://p:1"),
        ({"http_proxy": "http://u:s%20t@p:1"}, "http://h", "http://p:1"),
    ],
)
def test_the_proxy_is_that_of_the_scheme(
    given: dict[str, str], url: str, proxy: str | None
) -> None:
    with variables(given):
        found = connections.proxy_of(httpx.URL(url))
    assert (None if found is None else str(found.url)) == proxy


def test_a_socks_proxy_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "find_spec", lambda _: None)
    with (
        variables({"ALL_PROXY": "socks5://h:1080"}),
        pytest.raises(ClientConfigurationError, match=r"ALL_PROXY names a SOCKS .*httpx\[socks\]"),
    ):
        connect("http://h")


def test_a_password_of_a_proxy_is_not_shown() -> None:
    with (
        variables({"HTTP_PROXY": "ftp://me:hidden@h"}),
        pytest.raises(ClientConfigurationError) as raised,
    ):
        connect("http://h")
    assert "hidden" not in str(raised.value)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as facade:
        yield facade


class _Proxy(BaseHTTPRequestHandler):
    """Sends each request on, and notes its target."""

    targets: list[str]

    def do_POST(self) -> None:
        self.targets.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {"Content-Type": self.headers["Content-Type"]}
        with httpx.Client(trust_env=False) as client:
            answer = client.post(self.path, content=body, headers=headers)
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_: Any) -> None:
        return


def test_a_client_goes_through_its_proxy_unless_it_must_not(served: Served) -> None:
    targets: list[str] = []
    handler = type("Handler", (_Proxy,), {"targets": targets})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        named = {"HTTP_PROXY": f"127.0.0.1:{proxy.server_address[1]}"}
        try:
            with variables(named), connect(served.url) as client:
                assert client.get("a") is None
            with variables({**named, "NO_PROXY": "127.0.0.0/8"}), connect(served.url) as client:
                assert client.get("a") is None
        finally:
            proxy.shutdown()
            thread.join()
    assert targets == [f"{served.url}/v1/read"]


def test_whom_to_trust(tmp_path: Path) -> None:
    ours = Path(certifi.where()).read_bytes()
    (tmp_path / "one.pem").write_bytes(ours[: ours.index(b"-----END CERTIFICATE-----") + 26])
    with variables({"SSL_CERT_FILE": str(tmp_path / "one.pem")}):
        found = connections.trusted()
    assert isinstance(found, ssl.SSLContext)
    assert found.cert_store_stats()["x509_ca"] == 1
    with variables({"SSL_CERT_DIR": f"/no/such:{tmp_path}"}):
        assert isinstance(connections.trusted(), ssl.SSLContext)
    with variables({}):
        assert connections.trusted() is None
    log = tmp_path / "keys"
    with variables({"SSLKEYLOGFILE": str(log)}):
        assert connections.trusted() is None
        assert log.exists()


@pytest.mark.parametrize("url", ["host:8080", "localhost:8080", "", "db", "//db:1", "http:db"])
def test_an_address_without_a_scheme_is_an_error_of_the_client(url: str) -> None:
    for make in (connect, connect_async, dbapi.connect):
        with pytest.raises(Exception, match="http://") as raised:
            make(url)
        assert isinstance(raised.value, ClientError)
        assert isinstance(raised.value, ConfigurationError)
