"""The web console in Chromium: everything on the page is used, in light and dark, wide and narrow.

Screenshots go to the folder that STREAMYDB_SCREENSHOTS names, if it does.
"""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.browser.page import ADMIN, CHROMIUM, HOSTILE, KEYS, LONG, READER, Page, Site

VIEWS = (
    "live", "data", "sql", "transactions", "changes", "streams", "procedures", "pipelines", "api",
)  # fmt: skip

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium")
]


def is_drawn(page: Page, card: str) -> bool:
    return "L" in page.attribute(f"{card} .trace", "d")


def test_live_figures_are_drawn(page: Page) -> None:
    page.until_text("#state", "live")
    titles = [each.text for each in page.all("#cards h3")]
    assert titles == [
        "Throughput", "Watermark age", "Latency of transactions", "Latency of reads", "Log lag",
        "Micro-batch time", "Conflict groups", "Hot keys",
    ]  # fmt: skip
    for card in (1, 2, 3, 5, 6):  # nothing reads yet
        page.until(partial(is_drawn, page, f".card:nth-child({card})"))
    page.until(lambda: "load/" in page.text(".card.hot"))
    page.until(lambda: "largest" in page.text(".card.groups"))
    assert "Estimated from the change feed" in page.text(".card.groups")
    assert page.text("#chip-pipeline") == "running"
    assert page.text("#chip-seq").replace(",", "").isdigit()


def test_a_plot_can_be_read_by_keyboard(page: Page) -> None:
    page.until(partial(is_drawn, page, ".card"))
    plot = page.one(".plot")
    plot.send_keys(KEYS.ARROW_LEFT * 3)
    page.until(lambda: page.text(".card .time").count(":") == 2)
    assert " at " in page.attribute(".plot", "aria-label")
    plot.send_keys(KEYS.ESCAPE)
    page.until(lambda: page.text(".card .time") == "")


def test_the_latency_of_reads_is_shown(page: Page) -> None:
    page.go("data")
    page.until(lambda: len(page.all("#keys .row")) > 1)
    page.go("live")
    page.until(lambda: "ms" in page.text(".card:nth-child(4) .value"))


def test_a_hot_key_leads_to_its_value(page: Page) -> None:
    page.until(lambda: len(page.all(".bars button")) > 0)
    key = page.attribute(".bars button", "title")
    page.press(f".bars button[title='{key}']")
    page.until_text("#detail h3", key)
    assert page.one("nav [aria-current]").text == "Data"


def test_keys_are_browsed_by_prefix_now_and_in_the_past(page: Page) -> None:
    page.go("data")
    page.type("#prefix", "acct/")
    page.press("#browse [type=submit]")
    page.until(lambda: [each.text for each in page.all("#keys .key")] == ["acct/1", "acct/2"])
    assert [each.text for each in page.all("#keys .preview")] == ["70", "30"]
    page.type("#at", "1")
    page.press("#browse [type=submit]")
    page.until(lambda: [each.text for each in page.all("#keys .preview")] == ["100", "0"])
    assert "snapshot at seq 1" in page.text("#browse-status")
    page.press("#keys .row")
    page.until_text("#detail .json", "100")
    page.press("#at-now")
    page.until(lambda: [each.text for each in page.all("#keys .preview")] == ["70", "30"])
    page.until_text("#detail .json", "70")
    page.type("#at", "1")
    page.press("#browse [type=submit]")
    page.until_text("#detail .json", "100")
    assert "as of seq 1" in page.text("#detail .hint")


def test_a_list_has_pages(page: Page) -> None:
    page.go("data")
    page.type("#prefix", "load/")
    page.press("#browse [type=submit]")
    page.until(lambda: len(page.all("#keys .row")) == 50)
    page.press("#more-keys")
    page.until(lambda: len(page.all("#keys .row")) > 50)


def test_a_key_has_a_history_that_leads_back_and_to_transactions(page: Page) -> None:
    page.go("data")
    page.type("#prefix", "acct/")
    page.press("#browse [type=submit]")
    page.until(lambda: len(page.all("#keys .row")) == 2)
    page.press("#keys .row")
    page.until(lambda: [each.text for each in page.all(".history .seq")] == ["seq 2", "seq 1"])
    assert [each.text for each in page.all(".history .preview")] == ["70", "100"]
    page.press(".history li:nth-child(2) .seq")
    page.until_text("#detail .json", "100")
    assert page.value("#at") == "1"
    page.until(lambda: page.text(".history [aria-current] .seq") == "seq 1")
    page.press(".history [aria-current] .id")
    page.until(lambda: "committed" in page.text("#found"))
    assert page.value("#txn-id") == "open"


def test_hostile_keys_and_values_are_texts(page: Page) -> None:
    page.go("data")
    page.type("#prefix", "<")
    page.press("#browse [type=submit]")
    page.until(lambda: [each.text for each in page.all("#keys .key")] == [HOSTILE])
    page.press("#keys .row")
    page.until_text("#detail .json", f'"{HOSTILE}"')
    page.until(lambda: len(page.all(".history li")) == 1)
    assert page.text("#detail h3") == HOSTILE
    assert page.all("main img") == []


def test_the_policy_refuses_markup_and_other_places(page: Page, site: Site) -> None:
    page.until_text("#state", "live")
    assert all(address.startswith(site.address) for address in page.loaded())
    assert not page.takes_markup()
    assert any("TrustedHTML" in text for text in page.errors())


def test_large_integers_lose_no_digit(page: Page) -> None:
    page.go("data")
    page.type("#prefix", "numbers/")
    page.press("#browse [type=submit]")
    page.until(lambda: len(page.all("#keys .row")) == 1)
    assert page.text("#keys .preview") == "6172839450617283945"
    page.press("#keys .row")
    page.until_text("#detail .json", "6172839450617283945")


def test_a_transaction_commits_and_one_aborts(page: Page) -> None:
    page.go("transactions")
    page.until(lambda: page.one("#run").is_displayed())
    page.edit('{"id": "run-1", "reads": ["run/a"], "updates": [{"op": "put", "key": "run/a", '
              '"value": 9007199254740993}]}')  # fmt: skip
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "committed")
    assert "9007199254740993" in page.text("#verdict .reads")
    page.edit('{"id": "run-2", "checks": [{"key": "run/a", "lt": 5}], "asserts": {"run/b": 1}}')
    page.one("#editor").send_keys(KEYS.CONTROL, KEYS.ENTER)
    page.until(lambda: page.text("#verdict .badge") == "aborted")
    assert "check-failed" in page.text("#verdict")
    cells = [each.text for each in page.all("#verdict .failed tbody tr:nth-child(2) td")]
    assert cells[:3] == ["check 0", "run/a", "9007199254740993"]


def test_a_transaction_without_an_id_gets_one(page: Page) -> None:
    page.go("transactions")
    page.until(lambda: page.one("#run").is_displayed())
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "committed")
    assert len(page.value("#txn-id")) == 36
    assert '"deadline_ms"' not in page.value("#editor")


def test_the_editor_says_where_it_is_not_json(page: Page) -> None:
    page.go("transactions")
    page.until(lambda: page.one("#run").is_displayed())
    page.edit('{"id": 1,\n oops}')
    page.until(lambda: "Line 2, column 2" in page.text("#editor-status"))
    page.press("#run-button")
    assert page.attribute("#editor", "aria-invalid") == "true"
    page.edit('{"id":"x","updates":[]}')
    page.press("#format")
    assert page.value("#editor") == '{"id": "x", "updates": []}'


def test_a_transaction_is_looked_up(page: Page) -> None:
    page.go("transactions")
    page.type("#txn-id", "move")
    page.press("#lookup [type=submit]")
    page.until(lambda: page.text("#found .badge") == "committed")
    assert "seq" in page.text("#found dl")
    page.press("#found summary")
    page.until(lambda: '"source"' in page.text("#found details .json"))
    page.press("#found .life-summary")
    page.until(lambda: "acct/" in page.text("#found .life .met"))
    assert "committed at" in page.text("#found .life")
    page.type("#txn-id", "never was")
    page.press("#lookup [type=submit]")
    page.until(lambda: "No result that Kafka keeps has this id" in page.text("#found"))
    assert page.errors(allow="404") == []


def test_a_key_is_written_with_its_version_checked(page: Page) -> None:
    page.go("data")
    page.type("#prefix", "acct/2")
    page.press("#browse [type=submit]")
    page.until(lambda: len(page.all("#keys .row")) == 1)
    page.press("#keys .row")
    page.until(lambda: len(page.all("#detail [data-write]")) == 1)
    page.press("#detail [data-write]")
    page.until(lambda: '"version"' in page.value("#editor"))
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "committed")


def test_a_key_shows_its_end_and_keeps_it_when_it_is_written(page: Page) -> None:
    page.go("transactions")
    update = {"op": "put", "key": "session/1", "value": 1, "ttl_ms": 3_600_000}
    page.type("#editor", json.dumps({"updates": [update]}))
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "committed")
    page.go("data")
    page.type("#prefix", "session/")
    page.press("#browse [type=submit]")
    page.until(lambda: len(page.all("#keys .row")) == 1)
    page.press("#keys .row")
    page.until(lambda: "(in 60 min)" in page.text("#detail .hint"))
    page.until(lambda: " · ends 20" in page.text("#detail .history"))
    page.press("#detail [data-write]")
    page.until(lambda: '"ttl_ms"' in page.value("#editor"))
    (again,) = json.loads(page.value("#editor"))["updates"]
    assert 0 < again.pop("ttl_ms") <= 3_600_000
    assert again == {"op": "put", "key": "session/1", "value": 1}


def test_changes_are_followed(page: Page, site: Site) -> None:
    page.go("changes")
    page.type("#follow-prefix", "<")
    page.press("#follow-button")
    page.until(lambda: page.text("#follow-status").startswith("Following"))
    site.commit("hostile-2", {HOSTILE: [HOSTILE]})
    page.until(lambda: len(page.all("#events li")) == 1)
    assert page.text("#events .key") == HOSTILE
    assert page.text("#events .badge") == "updated"
    assert f'"{HOSTILE}" → ["{HOSTILE}"]' in page.text("#events .preview")
    assert page.all("main img") == []
    page.press("#follow-button")
    page.until(lambda: page.text("#follow-status").startswith("Stopped"))


def test_old_changes_are_followed_too(page: Page) -> None:
    page.go("changes")
    page.type("#follow-prefix", "acct/1")
    page.type("#since", "1")
    page.press("#follow-button")
    page.until(lambda: "100 \u2192 70" in page.text("#events"))
    page.press("#events li:last-child .key")
    page.until_text("#detail h3", "acct/1")


def test_changes_are_chosen_by_their_values(page: Page) -> None:
    page.go("changes")
    page.type("#follow-where", "more than 70")
    page.press("#follow-button")
    page.until(lambda: "is a check as JSON" in page.text("#follow-status"))
    page.type("#follow-where", '{"le": 70}')
    page.type("#follow-before", '{"eq": 100}')
    page.type("#follow-start", "acct/")
    page.type("#follow-end", "acct0")
    page.type("#since", "1")
    page.press("#follow-button")
    page.until(lambda: "100 \u2192 70" in page.text("#events"))
    assert len(page.all("#events li")) == 1


def test_a_read_token_cannot_write(browser: Page, locked: Site) -> None:
    browser.visit(locked.address)
    browser.until_text("#state", "token needed")
    browser.until(lambda: browser.one("#token").is_displayed())
    browser.emulate(390, "light")
    assert browser.overflow() == 0
    browser.emulate(1400, "light")
    browser.type("#token", READER)
    browser.press("#token-form [type=submit]")
    browser.until_text("#state", "live")
    browser.go("transactions")
    browser.until(lambda: browser.one("#read-only").is_displayed())
    assert not any(each.is_displayed() for each in browser.all("[data-write]"))
    assert browser.stored("sessionStorage") == [READER]
    assert READER not in browser.stored("localStorage")
    assert browser.fetch("POST", "v1/transactions", READER, '{"updates": [{"op": "delete", '
                         '"key": "a"}]}') == 403  # fmt: skip
    browser.press("#token-toggle")
    browser.until(lambda: "reads all keys; writes nothing" in browser.text("#token-who"))
    browser.type("#token", ADMIN)
    browser.press("#token-form [type=submit]")
    browser.until(lambda: browser.one("#run").is_displayed())
    browser.go("changes")
    browser.press("#follow-button")
    browser.until(lambda: browser.text("#follow-status").startswith("Following"))
    browser.press("#token-toggle")
    browser.press("#token-forget")
    browser.until_text("#state", "token needed")
    assert browser.stored("sessionStorage") == []
    assert browser.text("#follow-status").startswith("Not following")
    assert browser.errors(allow="40[13]") == []


def test_controls_are_labelled_and_reached_by_keyboard(page: Page) -> None:
    assert page.unlabelled() == []
    page.one("body").send_keys(KEYS.TAB)
    assert page.focused().text == "Skip to the content"
    page.one("body").send_keys(KEYS.TAB, KEYS.ENTER)
    assert "Theme: light" in page.text("#theme")


def test_the_theme_is_toggled_and_kept(page: Page, site: Site) -> None:
    page.emulate(1400, "light")
    light = page.background()
    page.press("#theme")
    page.press("#theme")
    assert page.text("#theme") == "Theme: dark"
    assert page.background() != light
    page.reload(site.address)
    assert page.text("#theme") == "Theme: dark"
    page.press("#theme")
    assert page.background() == light


def test_a_long_key_fits_a_narrow_page(page: Page) -> None:
    page.emulate(390, "light")
    page.go("data")
    page.type("#prefix", "zz/")
    page.press("#browse [type=submit]")
    page.until(lambda: [each.text for each in page.all("#keys .key")] == [LONG])
    page.press("#keys .row")
    page.until(lambda: len(page.all(".history .id")) == 1)
    assert page.overflow() == 0
    page.press(".history .id")
    page.until(lambda: page.text("#found .badge") == "committed")
    page.go("changes")
    page.type("#follow-prefix", "zz/")
    page.type("#since", "1")
    page.press("#follow-button")
    page.until(lambda: len(page.all("#events li")) > 0)
    assert page.overflow() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_every_view_fits(page: Page, width: int, scheme: str) -> None:
    page.emulate(width, scheme)
    page.until_text("#state", "live")
    page.until(lambda: len(page.all(".bars li")) > 5)
    for view in VIEWS:
        page.fill_view(view)
        assert page.overflow() == 0, f"{view} scrolls sideways"
        page.keep(f"console-{view}-{scheme}-{width}")
