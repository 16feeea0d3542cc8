"""The views of the console for SQL, streams, procedures, pipelines and the API, in Chromium."""

from __future__ import annotations

from functools import partial

import pytest

from tests.browser.page import ADMIN, CHROMIUM, SCOPED, Page, Site, vote

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium")
]


def test_every_example_commits_in_an_empty_database_and_again(empty: tuple[Page, Site]) -> None:
    page, _ = empty
    page.go("transactions")
    page.until(lambda: len(page.all("#templates button")) > 3)
    names = [each.text for each in page.all("#templates button")]
    for number in [*range(1, len(names) + 1)] * 2:
        page.press(f"#templates button:nth-child({number})")
        page.until_text("#verdict", "")
        page.press("#run-button")
        page.until(lambda: page.text("#verdict .badge") != "")
        assert page.text("#verdict .badge") == "committed", names[number - 1]
    assert page.errors() == []


def test_every_query_of_the_page_runs_in_an_empty_database(empty: tuple[Page, Site]) -> None:
    page, _ = empty
    page.go("sql")
    for number in range(1, len(page.all("#queries button")) + 1):
        page.press(f"#queries button:nth-child({number})")
        page.press("#query [type=submit]")
        page.until(lambda: page.text("#query-status").startswith("0 rows"))
    assert page.errors() == []


def test_rows_are_shown_as_a_table_and_as_a_plot(page: Page) -> None:
    page.go("sql")
    page.type("#query-prefix", "acct/")
    page.type("#query-at", "2")
    page.type("#sql", "select key, value::int as n, 6172839450617283945 as big from kv order by 1")
    big = "6172839450617283945"
    page.press("#query [type=submit]")
    page.until(lambda: len(page.all("#rows tbody tr")) == 2)
    cells = [each.text for each in page.all("#rows tbody td")]
    assert cells == ["acct/1", "70", big, "acct/2", "30", big]
    assert "2 rows · snapshot at seq 2" in page.text("#query-status")
    page.press("#as-plot")
    page.until(lambda: [each.text for each in page.all("#plot .number")] == ["70", "30"])
    page.type("#sql", "select n, n * n as square from range(10) as numbers(n)")
    page.press("#query [type=submit]")
    page.until(lambda: page.attribute("#plot .trace", "d").count("L") == 9)
    page.keep("console-sql-lines")
    page.type("#sql", "select nonsense")
    page.press("#query [type=submit]")
    page.until(lambda: "nonsense" in page.text("#query-status"))
    assert not page.one("#result").is_displayed()
    assert page.errors(allow="400") == []


def test_a_constraint_is_declared_obeyed_and_dropped(page: Page) -> None:
    page.go("procedures")
    page.until_text("#constraints", "None is declared.")
    page.press("#declare")
    page.until(lambda: "not-negative" in page.value("#editor"))
    page.edit('{"constrain": {"declare": {"name": "small", "prefix": "tiny/", "max": 9}}}')
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "committed")
    page.edit('{"updates": [{"op": "put", "key": "tiny/1", "value": 10}]}')
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "aborted")
    assert "constraint small: max 9" in page.text("#verdict .failed")
    page.go("procedures")
    page.until_text("#constraints h4", "small")
    assert "tiny/" in page.text("#constraints dl")
    page.press("#constraints .entry button")
    page.until(lambda: '"drop"' in page.value("#editor"))
    page.press("#run-button")
    page.until(lambda: page.text("#verdict .badge") == "committed")
    page.go("procedures")
    page.until_text("#constraints", "None is declared.")


def _begins(page: Page, selector: str, said: str) -> bool:
    return page.text(selector).startswith(said)


def test_sql_writes_and_reads_tables(empty: tuple[Page, Site]) -> None:
    page, _ = empty
    page.go("sql")
    page.press("#over-tables")
    assert page.text("#sql-label").startswith("Statements on SQL tables")
    templates = page.all("#queries button")
    statuses = ["committed", "1 row written", "1 row ", "1 row"]
    for template, said in zip(templates, statuses, strict=True):
        template.click()
        page.press("#query [type=submit]")
        page.until(partial(_begins, page, "#query-status", said))
    insert = "insert into notes (id, text) values (2, 'x; y'); -- two"
    page.type("#sql", f"{insert}\nselect text from notes")
    page.press("#query [type=submit]")
    page.until(lambda: page.text("#query-status").startswith("1 row written · 2 rows · committed"))
    assert "x; y" in page.text("#rows")
    page.type("#sql", "select nothing from notes")
    page.press("#query [type=submit]")
    page.until(lambda: "nothing" in page.text("#query-status"))
    page.press("#over-keys")
    page.press("#query [type=submit]")
    page.until(lambda: "snapshot at seq" in page.text("#query-status"))


def test_a_stream_is_read_and_followed(page: Page, site: Site) -> None:
    page.go("streams")
    page.type("#stream-name", "voter.votes")
    page.press("#stream-button")
    page.until(lambda: len(page.all("#records li")) == 3)
    assert [each.text for each in page.all("#records .preview")] == ['{"who":"ann"}'] * 3
    page.until(lambda: "waiting for more" in page.text("#stream-status"))
    vote(site, 1_000)
    page.until(lambda: page.text("#records .id") == "vote-1000")
    page.press("#stream-button")
    page.until_text("#stream-status", "Stopped")


def test_a_procedure_is_offered_to_be_called(page: Page) -> None:
    page.go("procedures")
    page.until_text("#modules h4", "voter")
    assert "voter.vote(phone, who)" in page.text("#modules")
    page.press("#modules .calls button")
    page.until(lambda: '"procedure": "voter.' in page.value("#editor"))


def test_a_stream_that_is_none_is_told(page: Page) -> None:
    page.go("streams")
    page.type("#stream-name", "nobody.votes")
    page.press("#stream-button")
    page.until(lambda: "There is no such stream" in page.text("#stream-status"))
    assert page.text("#stream-button") == "Read"
    assert page.errors(allow="404") == []


def test_pipelines_and_their_digests_are_shown(page: Page) -> None:
    page.go("pipelines")
    page.until(lambda: len(page.all("#digests tbody tr")) == 2)
    judged = [each.text for each in page.all("#digests .badge")]
    assert judged == ["they differ", "agree"]
    assert [each.text for each in page.all("#pipelines-here tbody .badge")] == [
        "running", "leading", "following",
    ]  # fmt: skip


def test_the_api_is_a_reference(page: Page) -> None:
    page.go("api")
    page.until(lambda: len(page.all("#endpoints .endpoint")) > 15)
    page.press("#endpoints .endpoint:nth-child(2) summary")
    page.until(lambda: "What may go wrong" in page.text("#endpoints .endpoint:nth-child(2)"))
    assert "key-not-found" in page.text("#problem-types")


def test_the_database_is_named(page: Page) -> None:
    page.until_text("#database", "shop-of-tests")
    assert page.title() == "shop-of-tests · streamy-db"


def test_a_long_hot_key_shows_its_end(page: Page, site: Site) -> None:
    beginning = "hot/" + "a-long-way-to-the-end/" * 4
    for number in range(40):
        site.commit(f"hot-{number}", {f"{beginning}{each}": number for each in ("one", "two")})
    ends = f".bars button[title^='{beginning}'] :last-child"
    page.until(lambda: {each.text[-3:] for each in page.all(ends)} == {"one", "two"})
    for each in page.all(ends):
        assert page.is_whole(each)


def test_in_an_outage_the_last_snapshot_is_shown(empty: tuple[Page, Site]) -> None:
    page, site = empty
    site.commit("open", {"acct/1": 100})
    site.lose_kafka()
    page.until_text("#state", "no writes")
    assert "Reads show the state of" in page.text("#notice")
    page.go("data")
    page.until(lambda: [each.text for each in page.all("#keys .key")] == ["acct/1"])
    page.press("#keys .row")
    page.until(lambda: [each.text for each in page.all(".history .seq")] == ["seq 1"])
    page.go("changes")
    page.press("#follow-button")
    page.until(lambda: page.text("#follow-status").startswith("Following · up to seq 1"))
    page.press("#follow-button")
    assert page.errors() == []


def test_a_scoped_token_opens_on_what_it_may_see(browser: Page, locked: Site) -> None:
    browser.visit(locked.address)
    browser.until(lambda: browser.one("#token").is_displayed())
    browser.type("#token", SCOPED)
    browser.press("#token-form [type=submit]")
    browser.until_text("#state", "live")
    browser.go("transactions")
    browser.until(lambda: "team/" in browser.value("#editor"))
    browser.press("#run-button")
    browser.until(lambda: browser.text("#verdict .badge") == "committed")
    browser.go("data")
    browser.until(lambda: [each.text for each in browser.all("#keys .key")] == ["team/greeting"])
    browser.go("sql")
    browser.press("#query [type=submit]")
    browser.until(lambda: browser.text("#query-status").startswith("1 row "))
    browser.go("changes")
    browser.press("#follow-button")
    browser.until(lambda: browser.text("#follow-status").startswith("Following"))
    browser.go("procedures")
    browser.until(lambda: "This token may not see them." in browser.text("#constraints"))
    browser.press("#token-toggle")
    browser.type("#token", ADMIN)
    browser.press("#token-form [type=submit]")
    browser.go("data")
    browser.until(lambda: browser.value("#prefix") == "")
    assert browser.errors(allow="40[13]") == []
