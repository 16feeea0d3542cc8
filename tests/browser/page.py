"""A facade to look at, and the browser that looks: what the tests of the console share."""

from __future__ import annotations

import asyncio
import base64
import http.client
import itertools
import json
import os
import random
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import uvicorn
from pydantic import SecretStr
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.about import About, PipelineMessages
from streamydb.facade.life import Evidence
from streamydb.kafka.digests import ShardDigests, ToldDigest
from streamydb.kafka.presence import Seen
from streamydb.local.folder import PipelineStatus
from streamydb.procedures.modules import compile_module
from tests.support.history import HistoryDatabase

KEYS: Final = Keys
RESOLVE_S: Final = 0.1
WAIT_S: Final = 20
CHROMIUM: Final = shutil.which("chromium")
_SCROLL: Final = "arguments[0].scrollIntoView({block: 'center'})"
FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1400,1000",
)  # fmt: skip


HOSTILE: Final = "<img src=x onerror=alert(1)>"
LONG: Final = "zz/" + "x" * 470
READER: Final = "reader-secret-0123456789"
ADMIN: Final = "admin-secret-0123456789"
SCOPED: Final = "scoped-secret-0123456789"
TOKENS: Final[list[dict[str, Any]]] = [
    {"name": "admin", "token": ADMIN, "read": [""], "write": [""]},
    {"name": "reader", "token": READER, "read": [""]},
    {"name": "scoped", "token": SCOPED, "read": ["team/"], "write": ["team/"]},
]


class LiveDatabase(HistoryDatabase):
    """A database in memory that lives in the present and resolves ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> None:
        self.execute()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RESOLVE_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.resolve()


class Site:
    """A facade on a free port, in a thread."""

    def __init__(self, tokens: list[dict[str, Any]] | None = None) -> None:
        database = LiveDatabase()
        settings = FacadeSettings(tokens=SecretStr(json.dumps(tokens)) if tokens else None)
        app = create_app(
            database.model, database.log, database.changes, settings, pipeline=self._status,
            about=About(
                "shop-of-tests", lambda: {"": self._status()}, told,
                lambda result: Evidence(
                    raw=database.log.records[result.source.offset], partitions=1, missing={}
                ),
            ),
        )  # fmt: skip
        self._database = database
        self._server = uvicorn.Server(
            uvicorn.Config(app, http="h11", ws="none", log_config=None, access_log=False,
                           timeout_graceful_shutdown=1)
        )  # fmt: skip
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.port}/"
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(lambda: self._server.run(sockets=[self._socket]))
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads[1:]:
            thread.join()
        self._server.should_exit = True
        self._threads[0].join()
        self._socket.close()

    def commit(self, txn_id: str, values: dict[str, Any]) -> None:
        """Put some values in one transaction."""
        updates = [{"op": "put", "key": key, "value": value} for key, value in values.items()]
        self.send({"id": txn_id, "updates": updates})

    def send(self, transaction: dict[str, Any]) -> None:
        """Execute a transaction."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("POST", "/v1/transactions", json.dumps(transaction))
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
        finally:
            connection.close()

    def deploy(self, name: str, text: str) -> None:
        """Deploy a module of stored procedures."""
        self._database.modules.put(text.encode())
        self.send({"id": f"deploy-{name}", "deploy": compile_module(name, text.encode()).record})

    def lose_kafka(self) -> None:
        """From now on the log refuses."""
        self._database.log.refusing = True

    def work(self) -> None:
        """Go on sending transactions, some of which meet."""
        for number in range(3):
            self._start(partial(self._work, random.Random(number)))

    def _work(self, chance: random.Random) -> None:
        for number in itertools.count():
            pause = 0.03 + 0.02 * chance.random()
            if self._stop.wait(pause if number > 40 else 0):
                return
            keys = {f"load/{int(chance.paretovariate(0.6)) % 300:03}" for _ in range(2)}
            self.send({"updates": [{"op": "add", "key": key, "by": 1} for key in sorted(keys)],
                       "reads": [min(keys)]})  # fmt: skip

    def _start(self, target: Callable[[], object]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _status(self) -> PipelineStatus:
        """What a pipeline would say of itself."""
        wave = now_ms() // 1_000 % 20
        return PipelineStatus(
            state="running", batch_ms=180.0 + 9 * abs(wave - 10), lag=3 * (wave % 7),
            updated_ms=now_ms(),
        )  # fmt: skip


def vote(site: Site, phone: int) -> None:
    """Have somebody vote, who has that phone."""
    keys = [f"phone/{phone}", "$flows/voter"]
    call = {"procedure": "voter.vote", "args": {"phone": phone, "who": "ann"}, "keys": keys}
    site.send({"id": f"vote-{phone}", "call": call})


def told() -> PipelineMessages:
    """What two pipelines would say in Kafka; of their last digests one pair differs."""
    names = ("0f3a77c1d9e2", "9be0c4417a55")
    heard = [
        Seen(
            name=name, pipeline=pipeline, role=role, epoch=3, resolved=20_000, ready=True,
            age_s=0.2,
        )
        for name, pipeline, role in (
            ("first", names[0], "leading"), ("second", names[1], "following"),
        )
    ]  # fmt: skip
    digests = [
        ShardDigests(seq=seq, shard=0, told=[
            ToldDigest(pipeline=name, state=("a" if alike else name[0]) * 32, outcomes="b" * 16)
            for name in names
        ])
        for seq, alike in ((20_000, False), (10_000, True))
    ]  # fmt: skip
    return PipelineMessages(heard=heard, digests=digests)


class Page:
    """The page as somebody uses it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def visit(self, address: str) -> None:
        """Open the page as for the first time."""
        self._driver.get(address)
        self._driver.execute_script("sessionStorage.clear(); localStorage.clear();")
        self.emulate(1400, "light")
        self.reload(address)
        self.errors()

    def run_elsewhere(self, address: str, script: str, *arguments: Any) -> Any:
        """Open an address, whatever its policy allows; return what a script calls back with."""
        self._driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        self._driver.get(address)
        self._driver.set_script_timeout(WAIT_S)
        return self._driver.execute_async_script(script, *arguments)

    def reload(self, address: str) -> None:
        """Open the page again, at its first view."""
        self._driver.get("about:blank")
        self._driver.get(address)

    def all(self, selector: str) -> list[WebElement]:
        """The elements."""
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The first element."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """What is shown of the first element; nothing if there is none."""
        found = self.all(selector)
        return found[0].text if found else ""

    def attribute(self, selector: str, name: str) -> str:
        """An attribute of the first element, empty if it has none."""
        return self.one(selector).get_attribute(name) or ""

    def value(self, selector: str) -> str:
        """What a field holds."""
        return str(self.one(selector).get_property("value"))

    def until(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait for a condition."""
        stale = (StaleElementReferenceException,)
        wait = WebDriverWait(self._driver, timeout_s, poll_frequency=0.05, ignored_exceptions=stale)
        wait.until(lambda _: condition())

    def until_text(self, selector: str, text: str) -> None:
        """Wait for a text."""
        self.until(lambda: self.text(selector) == text)

    def press(self, selector: str) -> str:
        """Press a button when it can be; return what was written on it."""
        written: list[str] = []

        def pressed() -> bool:
            element = self.one(selector)
            name = element.text
            if element.is_displayed() and element.is_enabled():
                self._driver.execute_script(_SCROLL, element)
                element.click()
                written.append(name)
            return bool(written)

        self.until(pressed)
        return written[0]

    def type(self, selector: str, text: str) -> None:
        """Type into a field."""
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def edit(self, text: str) -> None:
        """Type a transaction."""
        self.type("#editor", text)

    def go(self, view: str) -> None:
        """Go to a view."""
        self.one(f"nav [href='#{view}']").click()
        self.until(lambda: self.one(f"#view-{view}").is_displayed())

    def focused(self) -> WebElement:
        """What has the focus."""
        return self._driver.switch_to.active_element

    def errors(self, allow: str | None = None) -> list[str]:
        """Errors in the browser's console since the last call; failed requests may be allowed."""
        log: Callable[[str], list[dict[str, Any]]] = self._driver.get_log
        entries = log("browser")
        found = [str(entry["message"]) for entry in entries if entry["level"] != "INFO"]
        expected = re.compile(rf"responded with a status of (?:{allow})") if allow else None
        return [text for text in found if not (expected and expected.search(text))]

    def title(self) -> str:
        """The window's title."""
        return self._driver.title

    def is_whole(self, element: WebElement) -> bool:
        """Whether all of an element is seen."""
        script = """
            const [element] = arguments;
            const {left, right} = element.parentElement.getBoundingClientRect();
            const own = element.getBoundingClientRect();
            const inside = own.left >= left - 1 && own.right <= right + 1;
            return inside && element.scrollWidth <= element.clientWidth + 1;"""
        return bool(self._driver.execute_script(script, element))

    def loaded(self) -> list[str]:
        """The addresses of all that the page has asked for."""
        script = "return performance.getEntriesByType('resource').map((each) => each.name)"
        return list(self._driver.execute_script(script))

    def takes_markup(self) -> bool:
        """Whether a script could turn text into markup."""
        script = "try { document.body.innerHTML = '<b>'; return true } catch { return false }"
        return bool(self._driver.execute_script(script))

    def stored(self, name: str) -> list[str]:
        """The values in one of the browser's stores."""
        return list(self._driver.execute_script(f"return Object.values({name})"))

    def fetch(self, method: str, target: str, token: str, body: str) -> int:
        """The status of a request that the page would not send."""
        script = """
            const [method, target, token, body, done] = arguments;
            fetch(target, {method, body, headers: {Authorization: `Bearer ${token}`}})
                .then((answer) => done(answer.status));"""
        return int(self._driver.execute_async_script(script, method, target, token, body))

    def unlabelled(self) -> list[str]:
        """Controls without a name."""
        script = """
            const name = (each) => each.labels?.length || each.ariaLabel || each.textContent.trim();
            return [...document.querySelectorAll("input, select, textarea, button, a")]
                .filter((each) => !name(each)).map((each) => each.outerHTML);"""
        return list(self._driver.execute_script(script))

    def background(self) -> str:
        """The page's colour."""
        script = "return getComputedStyle(document.body).backgroundColor"
        return str(self._driver.execute_script(script))

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        script = "return document.documentElement.scrollWidth - innerWidth"
        return max(0, int(self._driver.execute_script(script)))

    def emulate(self, width: int, scheme: str) -> None:
        """Be so wide, and prefer a colour scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def keep(self, name: str) -> None:
        """Keep a picture of the whole page in the folder STREAMYDB_SCREENSHOTS, if it is set."""
        folder = os.environ.get("STREAMYDB_SCREENSHOTS")
        if not folder:
            return
        self._driver.execute_script("scrollTo(0, 0)")
        options = {"format": "png", "captureBeyondViewport": True}
        picture = self._driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(picture))

    def fill_view(self, view: str) -> None:
        """Let a view show what it can."""
        self.go(view)
        if view == "data":
            self.until(lambda: len(self.all("#keys .row")) > 5)
            place = [each.text for each in self.all("#keys .key")].index("acct/1")
            self.press(f"#keys li:nth-child({place + 1}) .row")
            self.until(lambda: len(self.all(".history li")) > 1)
        elif view == "transactions":
            self.until(lambda: self.one("#run").is_displayed())
            txn_id = f"shot-{time.monotonic_ns()}"
            self.edit(json.dumps({"id": txn_id, "checks": [{"key": "acct/1", "ge": 1_000}],
                                  "asserts": {"acct/2": None}, "reads": ["acct/1"]}))  # fmt: skip
            self.press("#format")
            self.press("#run-button")
            self.until(lambda: txn_id in self.text("#verdict dl"))
        elif view == "sql":
            self.press("#queries button:nth-child(2)")
            self.press("#query [type=submit]")
            self.until(lambda: len(self.all("#rows tbody tr")) > 1)
            self.press("#as-plot")
        elif view == "streams":
            self.type("#stream-name", "voter.votes")
            self.press("#stream-button")
            self.until(lambda: len(self.all("#records li")) > 1)
            self.press("#stream-button")
        elif view == "procedures":
            self.until(lambda: len(self.all("#modules li")) > 1)
        elif view == "pipelines":
            self.until(lambda: len(self.all("#digests tbody tr")) > 1)
        elif view == "api":
            self.until(lambda: len(self.all("#endpoints .endpoint")) > 10)
            self.press("#endpoints .endpoint:nth-child(5) summary")
        elif view == "changes":
            self.press("#follow-button")
            self.until(lambda: len(self.all("#events li")) > 12)
            self.press("#follow-button")


@contextmanager
def open_browser(profile: Path) -> Iterator[Page]:
    """Run Chromium with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or "chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver") or "chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Page(driver)
    finally:
        driver.quit()


def now_ms() -> int:
    """The present."""
    return time.time_ns() // 1_000_000
