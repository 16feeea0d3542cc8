"""The console and the shop of the tutorial in Chromium, over a real broker, pipeline and facade.

Screenshots go to the folder that STREAMYDB_SCREENSHOTS names, if it does.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import streamydb
from streamydb.client import Change, Client
from streamydb.local.broker import free_port
from streamydb.local.launcher import LocalProcess
from tests.browser.page import CHROMIUM, READER, Page
from tests.support.stack import Stack
from tests.support.tutorial import EXAMPLE, environment, serving

SEATS, PRICE, GUESTS = 24, 30, 60

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as started:
        yield started


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with streamydb.connect(stack.http) as connected:
        yield connected


@contextmanager
def working(client: Client) -> Iterator[None]:
    """Transactions that go on, some of which meet."""
    stop = threading.Event()

    def work(chance: random.Random) -> None:
        while not stop.is_set():
            keys = {f"load/{int(chance.paretovariate(0.6)) % 300:03}" for _ in range(2)}
            adding = client.atomic().read(min(keys))
            for key in sorted(keys):
                adding.add(key, 1)
            adding.commit()

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, random.Random(number)) for number in range(4)]
        try:
            yield
        finally:
            stop.set()
    for each in done:
        each.result()


def drawn(page: Page, card: int) -> str:
    """The line of a plot."""
    return page.attribute(f".card:nth-child({card}) .trace", "d")


def moves(page: Page, card: int) -> None:
    """Wait until a plot is drawn, and until it is another one."""
    page.until(lambda: "L" in drawn(page, card))
    first = drawn(page, card)
    page.until(lambda: drawn(page, card) != first)


def test_the_plots_of_a_real_pipeline_move(browser: Page, stack: Stack, client: Client) -> None:
    with working(client):
        browser.visit(f"{stack.http}/")
        browser.until_text("#state", "live")
        for card in (1, 2, 3, 5, 6):
            moves(browser, card)
        browser.until(lambda: "load/" in browser.text(".card.hot"))
        browser.until(lambda: "largest" in browser.text(".card.groups"))
        browser.until(lambda: browser.text("#chip-pipeline") == "running")
        for scheme, width in itertools.product(("light", "dark"), (1400, 390)):
            browser.emulate(width, scheme)
            for view in ("live", "data", "sql", "transactions", "pipelines"):
                browser.go(view)
                assert browser.overflow() == 0
                browser.keep(f"real-{view}-{scheme}-{width}")
    assert browser.errors() == []


def test_the_pipeline_that_runs_is_heard_in_kafka(browser: Page, stack: Stack) -> None:
    browser.visit(f"{stack.http}/")
    browser.until_text("#database", "bank")
    browser.go("pipelines")
    browser.until(lambda: "leading" in browser.text("#pipelines-here"))
    assert browser.text("#pipelines-here .badge") == "running"
    assert browser.text("#pipelines-status") == ""
    assert "None was told yet" in browser.text("#digests") or browser.all("#digests tbody tr")
    assert browser.errors() == []


def test_a_query_of_the_page_sees_what_was_written(
    browser: Page, stack: Stack, client: Client
) -> None:
    for number in range(3):
        client.put(f"sql/{number}", number)
    browser.visit(f"{stack.http}/")
    browser.go("sql")
    browser.type("#sql", "select key, value::int as n from kv where key like 'sql/%' order by key")
    browser.press("#query [type=submit]")
    browser.until(lambda: len(browser.all("#rows tbody tr")) == 3)
    browser.press("#as-plot")
    browser.until(lambda: [each.text for each in browser.all("#plot .number")] == ["0", "1", "2"])
    assert browser.errors() == []


def test_a_transaction_of_the_page_is_executed_and_followed(
    browser: Page, stack: Stack, client: Client
) -> None:
    begun = client.put("page/a", 1).seq
    browser.visit(f"{stack.http}/")
    browser.go("changes")
    browser.type("#follow-prefix", "page/")
    browser.press("#follow-button")
    browser.until(lambda: browser.text("#follow-status").startswith("Following"))
    browser.go("transactions")
    browser.until(lambda: browser.one("#run").is_displayed())
    browser.edit('{"id": "of-the-page", "checks": [{"key": "page/a", "eq": 1}], "reads": '
                 '["page/a"], "updates": [{"op": "add", "key": "page/a", "by": 41}]}')  # fmt: skip
    browser.press("#run-button")
    browser.until(lambda: browser.text("#verdict .badge") == "committed")
    assert "42" in browser.text("#verdict .reads")
    assert client.verdict("of-the-page").reads == {"page/a": 42}
    browser.press("#run-button")  # the same id and bytes: the same verdict, executed once
    browser.until(lambda: browser.text("#verdict .badge") == "committed")
    assert client.get("page/a") == 42
    browser.go("changes")
    browser.until(lambda: "1 \u2192 42" in browser.text("#events .preview"))
    assert len(browser.all("#events li")) == 1
    browser.go("data")
    browser.type("#prefix", "page/")
    browser.type("#at", str(begun))
    browser.press("#browse [type=submit]")
    browser.until(lambda: [each.text for each in browser.all("#keys .preview")] == ["1"])
    browser.press("#at-now")
    browser.until(lambda: [each.text for each in browser.all("#keys .preview")] == ["42"])
    browser.press("#keys .row")
    browser.until(lambda: len(browser.all(".history li")) == 2)
    assert browser.errors() == []


@contextmanager
def locked(stack: Stack, folder: Path) -> Iterator[str]:
    """A second facade of the same database, with a token that only reads."""
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps([{"name": "reader", "token": READER, "read": [""]}]))
    port = free_port()
    command = [
        sys.executable, "-m", "streamydb.cli", "serve", "--home", str(stack.home),
        "--port", str(port), "--tokens-file", str(tokens),
    ]  # fmt: skip

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=5):
                return True
        except OSError:
            return False

    process = LocalProcess("the second facade", command, folder / "serve.log")
    try:
        process.wait_until(answers, 60)
        yield f"http://127.0.0.1:{port}/"
    finally:
        assert process.stop() in {0, -signal.SIGTERM}


def test_a_read_token_reads_what_another_facade_writes(
    browser: Page, stack: Stack, client: Client, tmp_path: Path
) -> None:
    client.put("locked/a", "first")
    with locked(stack, tmp_path) as address:
        browser.visit(address)
        browser.until(lambda: browser.one("#token").is_displayed())
        browser.type("#token", READER)
        browser.press("#token-form [type=submit]")
        browser.until_text("#state", "live")
        browser.go("data")
        browser.type("#prefix", "locked/")
        browser.press("#browse [type=submit]")
        browser.until(lambda: browser.text("#keys .preview") == '"first"')
        assert not any(each.is_displayed() for each in browser.all("[data-write]"))
        browser.go("changes")
        browser.type("#follow-prefix", "locked/")
        browser.press("#follow-button")
        browser.until(lambda: browser.text("#follow-status").startswith("Following"))
        client.put("locked/a", "second")
        browser.until(lambda: '"first" \u2192 "second"' in browser.text("#events .preview"))
        assert browser.fetch("DELETE", "v1/kv/locked/a", READER, "") == 403
        browser.visit(f"{stack.http}/")
    assert browser.errors(allow="40[13]") == []


@pytest.fixture(scope="module")
def shop(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The example, served; its folder and address."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    shutil.copytree(EXAMPLE, folder)
    with serving(folder, environment(stack.http, free_port())) as address:
        yield folder, address


def rush(stack: Stack, folder: Path) -> str:
    """What the opening night prints."""
    done = subprocess.run(
        [sys.executable, "rush.py"], cwd=folder, env=environment(stack.http, 0),
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def history(client: Client, since: int) -> list[Change]:
    """The shop's changes after a seq, to the end."""
    client.put("shop/end", since)
    with client.watch("shop/", since=since) as changes:
        return list(itertools.takewhile(lambda change: change.key != "shop/end", changes))


def test_the_opening_night_on_the_live_page(
    browser: Page, stack: Stack, client: Client, shop: tuple[Path, str]
) -> None:
    folder, address = shop
    begun = client.put("before", 0).seq
    browser.visit(address)
    browser.until(lambda: len(browser.all("#seats .free")) == SEATS)
    with ThreadPoolExecutor(1) as pool:
        night = pool.submit(rush, stack, folder)
        browser.until(lambda: 0 < len(browser.all("#seats .taken")) < SEATS, 120)
        assert "first in line have them: True" in night.result()
    browser.until_text("#left", "0")
    browser.until(lambda: len(browser.all("#seats .taken")) == SEATS)
    entries = {entry.key: entry.value for entry in client.scan("shop/")}
    shown = {each.text.split("\n")[0]: each.text.split("\n")[1] for each in
             browser.all("#seats button")}  # fmt: skip
    assert shown == {k.rpartition("/")[2]: v for k, v in entries.items() if "/ticket/" in k}
    assert browser.text("#waiting") == ", ".join(entries["shop/waiting"])
    assert browser.text("#takings") == str(SEATS * PRICE)
    for scheme, width in itertools.product(("light", "dark"), (1400, 390)):
        browser.emulate(width, scheme)
        assert browser.overflow() == 0
        browser.keep(f"shop-{scheme}-{width}")
    assert browser.errors() == []
    judge(history(client, begun))


def judge(changes: list[Change]) -> None:
    """No seat changes hands but by a return, the line is served in its order, money adds up."""
    holders: dict[str, str] = {}
    account: Counter[str] = Counter()
    line: list[str] = []
    sold = served = 0
    for _, group in itertools.groupby(changes, key=lambda change: change.seq):
        written = {change.key: change for change in group}
        before = sum(account.values())
        for key, change in written.items():
            name = key.rpartition("/")[2]
            if "/account/" in key or name in {"held", "takings"}:
                account[name] = change.value or 0
            elif "/ticket/" in key and name in holders:
                assert change.before == holders[name]
                assert change.value == line[0]
                assert written["shop/waiting"].value == line[1:]
                holders[name], served = change.value, served + 1
            elif "/ticket/" in key:
                assert (change.op, change.before) == ("c", None)
                holders[name], sold = change.value, sold + 1
        if "shop/waiting" in written:
            line = written["shop/waiting"].value
        deposit = len(written) == 1 and next(iter(written)).startswith("shop/account/")
        assert sum(account.values()) - before == (100 if deposit else 0)
    assert (sold, served, len(line)) == (SEATS, 8, GUESTS - SEATS - 8)
    assert sum(account.values()) == 100 * GUESTS


def test_the_buttons_of_the_shop(browser: Page, client: Client, shop: tuple[Path, str]) -> None:
    client.run(lambda view: view.put("shop/waiting", []))
    for seat in ("A1", "A2"):
        client.delete(f"shop/ticket/{seat}")
    client.put("shop/left", 2)
    browser.visit(shop[1])
    browser.type("#name", "zoe")
    browser.press("#A1")
    browser.until_text("#message", "zoe has less than 30.")
    browser.press("#who [type=submit]")
    browser.until_text("#account", "100")
    browser.press("#A1")
    browser.until(lambda: browser.attribute("#A1", "class") == "mine")
    assert browser.text("#account") == "70"
    browser.press("#wait")
    browser.until_text("#message", "There are free seats.")
    browser.press("#A3")
    browser.until_text("#message", "A3 is taken.")
    browser.press("#A2")
    browser.until_text("#left", "0")
    browser.press("#wait")
    browser.until_text("#waiting", "zoe")
    browser.press("#A1")  # gives it back, and is the first who waits
    browser.until_text("#waiting", "nobody")
    browser.until_text("#account", "40")
    assert browser.attribute("#A1", "class") == "mine"
    assert browser.unlabelled() == []
    assert browser.errors(allow="409") == []
