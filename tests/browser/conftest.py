"""The sites that the tests of the console look at, and the browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.page import HOSTILE, LONG, TOKENS, Page, Site, open_browser, vote
from tests.support.workflows import VOTER


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        started.commit("open", {"acct/1": 100, "acct/2": 0, HOSTILE: HOSTILE})
        started.commit("move", {"acct/1": 70, "acct/2": 30})
        started.commit("long", {LONG: {LONG: [LONG]}})
        started.commit("big", {"numbers/big": 12345678901234567890 // 2})
        started.deploy("voter", VOTER)
        for number in range(3):
            vote(started, number)
        started.work()
        yield started


@pytest.fixture(scope="module")
def locked() -> Iterator[Site]:
    with Site(TOKENS) as started:
        yield started


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page, site: Site) -> Iterator[Page]:
    browser.visit(site.address)
    yield browser
    assert browser.errors() == []


@pytest.fixture
def empty(browser: Page) -> Iterator[tuple[Page, Site]]:
    with Site() as started:
        browser.visit(started.address)
        yield browser, started
