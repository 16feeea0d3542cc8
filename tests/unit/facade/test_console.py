"""The console's endpoints: the page's files, the history of a key, the figures."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app, load_tokens
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.console.sampler import Sampler
from streamydb.facade.console.static import POLICY
from streamydb.facade.console.stats import stats_of
from streamydb.facade.services import make_services
from streamydb.local.folder import PipelineStatus
from streamydb.read_model import ReadModel
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario, until
from tests.support.history import HistoryDatabase
from tests.support.read_model import example, follow

STATIC = Path(__file__).parents[3] / "streamydb" / "facade" / "console" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
TOKENS = [
    {"name": "admin", "token": "admin-secret-0123456789", "read": [""], "write": [""]},
    {"name": "reader", "token": "reader-secret-0123456789", "read": ["acct/"]},
]
ADMIN = {"Authorization": "Bearer admin-secret-0123456789"}
READER = {"Authorization": "Bearer reader-secret-0123456789"}


def connect(database: HistoryDatabase, *, locked: bool = False, **limits: Any) -> InProcess:
    tokens = SecretStr(json.dumps(TOKENS)) if locked else None
    settings = FacadeSettings(tokens=tokens, **limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


async def history(client: InProcess, target: str) -> Any:
    answer = await client.request("GET", f"/v1/history/{target}")
    assert answer.status == 200, answer
    return answer.json()


# The page


@scenario
async def test_the_page_and_its_files_are_served_safely() -> None:
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/"}
    async with connect(HistoryDatabase(), locked=True) as client:
        page = await client.request("GET", "/")
        assert page.body == (STATIC / "index.html").read_bytes()
        for path in FILES:
            name = path.relative_to(STATIC).as_posix()
            answer = await client.request("GET", f"/console/{name}")
            assert (answer.status, answer.body) == (200, path.read_bytes())
            assert answer.headers["content-type"].startswith(types[path.suffix])
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-cache"
            known = {"If-None-Match": f'"other", W/{answer.headers["etag"]}'}
            again = await client.request("GET", f"/console/{name}", headers=known)
            assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "target",
    ["/console/nothing.js", "/console/..%2fmount.py", "/console/../mount.py", "/console/",
     "/console/static/index.html", "/console/__init__.py", "/console/client/",
     "/console/client/nothing.js", "/console/client/../../mount.py"],
)  # fmt: skip
@scenario
async def test_nothing_else_is_served(target: str) -> None:
    async with connect(HistoryDatabase()) as client:
        answer = await client.request("GET", target)
        assert (answer.status, answer.problem) == (404, "no-such-endpoint")


@scenario
async def test_the_page_needs_no_token_and_its_data_does() -> None:
    async with connect(HistoryDatabase(), locked=True) as client:
        assert (await client.request("GET", "/")).status == 200
        for target in ("/v1/stats", "/v1/history/a"):
            assert (await client.request("GET", target)).problem == "unauthorized"


def test_the_page_is_fit_for_its_policy() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", page)
    named = re.findall(r'(?:src|href)="([^"#]+)"', page)
    served = {f"console/{path.relative_to(STATIC)}" for path in FILES}
    assert set(named) <= served | {"schema", "schema/openapi.json", "problems"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_insert_text_only_and_load_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    wrong = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|@import"
    assert not re.search(wrong, text)
    links = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[\w/.-]*", text))
    named = {"http://www.w3.org/2000/svg", "http://127.0.0.1"}  # a name of XML; in a comment
    assert links <= named
    for name in re.findall(r'from "\./([^"]+)"', text):
        assert (path.parent / name).is_file()


# History


@scenario
async def test_a_history_has_all_versions_newest_first() -> None:
    async with connect(HistoryDatabase()) as client:
        await client.request("PUT", "/v1/kv/a", b"1.0", {"Idempotency-Key": "first"})
        await client.request("PUT", "/v1/kv/b", b"2")
        await client.request("DELETE", "/v1/kv/a")
        await client.request("PUT", "/v1/kv/a", b'{"n": 12345678901234567}')
        shown = await history(client, "a")
        assert (shown["key"], shown["seq"], shown["more"]) == ("a", 4, False)
        assert [(v["version"], v["value"], v["deleted"]) for v in shown["versions"]] == [
            (4, {"n": 12345678901234567}, False), (3, None, True), (1, 1, False),
        ]  # fmt: skip
        assert shown["versions"][-1]["txn_id"] == "first"
        assert not any("expires_ms" in version for version in shown["versions"])
        await client.request("PUT", "/v1/kv/c?ttl_ms=5000", b"1")
        (ending,) = (await history(client, "c"))["versions"]
        assert ending["expires_ms"] == ending["ts_ms"] + 5_000
        past = await history(client, "a?at=3")
        assert [version["version"] for version in past["versions"]] == [3, 1]
        assert (await history(client, "never"))["versions"] == []


@pytest.mark.parametrize("limit", [1, 2, 7, 16, 17, 40])
@scenario
async def test_a_history_is_read_in_pages(limit: int) -> None:
    async with connect(HistoryDatabase()) as client:
        for number in range(40):
            await client.request("PUT", "/v1/kv/a", b"%d" % number)
        found: list[int] = []
        target = f"a?limit={limit}"
        for _ in range(40 // limit + 1):
            page = await history(client, target)
            assert len(page["versions"]) <= limit
            found += [version["version"] for version in page["versions"]]
            if not page["more"]:
                break
            target = f"a?limit={limit}&at={found[-1] - 1}"
        assert found == list(range(40, 0, -1))


@scenario
async def test_an_answer_is_bounded_in_bytes() -> None:
    async with connect(HistoryDatabase(), answer_bytes_max=25) as client:
        for _ in range(5):
            await client.request("PUT", "/v1/kv/a", b'"12345678"')
        page = await history(client, "a")
        assert ([v["version"] for v in page["versions"]], page["more"]) == ([5, 4], True)


@scenario
async def test_keys_are_the_bytes_in_the_path() -> None:
    async with connect(HistoryDatabase()) as client:
        for key in ("a%2Fb", "a/b/", "a//b", "%3Cimg%20src=x%20onerror=alert(1)%3E", "%C3%A9"):
            await client.request("PUT", f"/v1/kv/{key}", b"1")
            assert len((await history(client, key))["versions"]) == 1, key
        bad = await client.request("GET", "/v1/history/%ff")
        assert (bad.status, bad.problem) == (400, "invalid-key")


@scenario
async def test_a_history_needs_the_scope_and_a_snapshot() -> None:
    database = HistoryDatabase()
    async with connect(database, locked=True) as client:
        for _ in range(3):
            await client.request("PUT", "/v1/kv/acct/1", b"1", ADMIN)
        assert (await client.request("GET", "/v1/history/acct/1", headers=READER)).status == 200
        other = await client.request("GET", "/v1/history/other", headers=READER)
        assert other.problem == "forbidden"
        database.model.gone = 3
        gone = await client.request("GET", "/v1/history/acct/1?at=2", headers=READER)
        assert gone.problem == "snapshot-gone"
        unknown = await client.request("GET", "/v1/history/acct/1?what=1", headers=READER)
        assert unknown.problem == "invalid-parameter"


@scenario
async def test_versions_that_are_collected_while_they_are_read_are_left_out() -> None:
    database = HistoryDatabase()
    async with connect(database) as client:
        for _ in range(40):
            await client.request("PUT", "/v1/kv/a", b"1")
        database.model.gone = 30
        shown = await history(client, "a")
        assert shown["versions"][-1]["version"] == 25  # the first part was read as a whole
        assert shown["more"] is False


@scenario
async def test_the_real_read_model_has_histories(tmp_path: Path) -> None:
    database = HistoryDatabase()
    with ReadModel.open(tmp_path / "model", "bank", write=True) as model:
        follow(model, example())
        app = create_app(model, database.log, database.changes, FacadeSettings())
        async with InProcess(app) as client:
            shown = await history(client, "a?consistency=snapshot")
        assert [(v["version"], v["value"], v["txn_id"]) for v in shown["versions"]] == [
            (3, None, "id3"), (1, 1, "id1"),
        ]  # fmt: skip


# Figures


@asynccontextmanager
async def sampled(
    database: HistoryDatabase, status: PipelineStatus | None = None
) -> AsyncGenerator[Sampler, None]:
    settings = FacadeSettings()
    services = make_services(
        database.model, database.log, database.changes, settings, load_tokens(settings)
    )
    sampler = Sampler(services, None if status is None else lambda: status)
    sampler.began = 0
    try:
        yield sampler
    finally:
        await sampler.stop()


def put(database: HistoryDatabase, *keys: str) -> None:
    """Commit a write of each key."""
    for key in keys:
        number = len(database.log.records)
        update = {"op": "put", "key": key, "value": number}
        database.log.records.append(json.dumps({"id": f"t{number}", "updates": [update]}).encode())
        database.run()


@scenario
async def test_figures_tell_rate_age_and_lag() -> None:
    database = HistoryDatabase()
    database.tick_by_record(1_000)
    async with sampled(database) as sampler:
        put(database, "a")
        await sampler.sample(100.0)
        put(database, *"abcd")
        database.resolving = False
        put(database, "e", "f")
        taken = await sampler.sample(102.0)
        assert (taken.second, taken.seq, taken.transactions_per_s) == (101, 5, 2.0)
        assert taken.watermark_age_ms == 102_000 - database.model.latest().ts_ms
        assert taken.log_lag == 2
        late = await sampler.sample(200.0)
        assert late.transactions_per_s is None


@scenario
async def test_figures_that_cannot_be_had_are_missing() -> None:
    database = HistoryDatabase()
    async with sampled(database) as sampler:
        assert (await sampler.sample(1.0)).watermark_age_ms is None
        database.log.refusing = True
        assert (await sampler.sample(2.0)).log_lag is None
        database.model.broken = True
        assert (await sampler.sample(3.0)).seq is None


@scenario
async def test_a_log_that_hangs_is_asked_once() -> None:
    database = HistoryDatabase()
    async with sampled(database) as sampler:
        database.log.stalled = asyncio.Event()
        looks = database.log.looks
        for second in (1.0, 2.0):
            assert (await sampler.sample(second)).log_lag is None
        assert database.log.looks == looks + 1
        database.log.stalled.set()
        assert (await sampler.sample(3.0)).log_lag == 0


@scenario
async def test_the_pipeline_is_shown_if_it_can_be_seen() -> None:
    status = PipelineStatus(state="running", batch_ms=250.0, lag=7, updated_ms=99_000)
    database = HistoryDatabase()
    async with sampled(database, status) as sampler:
        await sampler.sample(100.0)
        shown = stats_of(sampler, ANYBODY, 100.5, 0)
        assert shown["pipeline"] == {"state": "running", "status_age_ms": 1_500}
        last = shown["samples"][-1]
        assert (last.t_ms, last.batch_ms, last.pipeline_lag) == (100_000, 250.0, 7)
    status.role, status.ready, status.behind, status.lag_ms = "following", False, 9_000, 70_000
    async with sampled(database, status) as sampler:
        await sampler.sample(100.0)
        behind = {"role": "following", "ready": False, "lag_ms": 70_000, "behind": 9_000}
        assert behind.items() <= stats_of(sampler, ANYBODY, 100.5, 0)["pipeline"].items()
    async with sampled(database, PipelineStatus()) as sampler:
        await sampler.sample(100.0)
        assert stats_of(sampler, ANYBODY, 100.5, 0)["pipeline"] is None


@scenario
async def test_samples_are_complete_seconds_after_the_one_asked_for() -> None:
    async with sampled(HistoryDatabase()) as sampler:
        sampler.traffic.record(999, "write", 200, 0.02)
        sampler.traffic.record(1_000, "write", 200, 0.02)
        shown = stats_of(sampler, ANYBODY, 1_000.5, 0)["samples"]
        assert (len(shown), shown[-1].t_ms, shown[-1].requests_per_s) == (300, 1_000_000, 1)
        assert shown[-1].write_p50_ms == pytest.approx(20, rel=0.03)
        await sampler.sample(1_001.0)
        newer = stats_of(sampler, ANYBODY, 1_002.5, 1_000_000)["samples"]
        assert [sample.t_ms for sample in newer] == [1_001_000]


@scenario
async def test_hot_keys_are_those_that_the_client_may_read() -> None:
    async with sampled(HistoryDatabase()) as sampler:
        database = HistoryDatabase()
        put(database, "acct/1", "acct/1", "other")
        for batch in database.changes.all:
            sampler.contention.take(50, batch)
        shown = stats_of(sampler, Caller("reader", ["acct/"]), 51.0, 0)
        assert shown["hot_keys"] == [{"key": "acct/1", "writes": 2}]
        assert (shown["hidden_keys"], shown["groups"], shown["observed"]["changes"]) == (0, [], 0)
        whole = stats_of(sampler, ANYBODY, 51.0, 0)
        assert whole["groups"] == [{"low": 1, "high": 1, "groups": 3, "transactions": 3}]
        assert shown["client"] == {"name": "reader", "scopes": {"read": ["acct/"], "write": []}}


async def stats(client: InProcess, headers: dict[str, str] | None = None) -> HttpAnswer:
    return await client.request("GET", "/v1/stats", headers=headers)


@scenario
async def test_the_feed_is_followed_once_somebody_looks() -> None:
    database = HistoryDatabase()
    async with connect(database) as client:
        first = await stats(client)
        assert first.headers["cache-control"] == "no-store"
        await until(lambda: database.changes._publish is not None)
        await client.request("PUT", "/v1/kv/a", b"1")
        for _ in range(5):
            await asyncio.to_thread(lambda: None)
        shown = (await stats(client)).json()
        assert shown["hot_keys"] == [{"key": "a", "writes": 1}]
        assert shown["observed"] == {"intervals": 1, "changes": 1, "examined": 1}
        assert shown["seq"] == 1


@scenario
async def test_requests_of_the_database_are_timed_and_others_not() -> None:
    database = HistoryDatabase()
    services = cast("list[Sampler]", [])
    original = Sampler.__init__

    def spy(self: Sampler, *args: Any) -> None:
        original(self, *args)
        services.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "__init__", spy)
        client = connect(database)
    async with client:
        for method, target in (
            ("PUT", "/v1/kv/a"), ("GET", "/v1/kv/a"), ("GET", "/v1/kv"), ("GET", "/v1/history/a"),
            ("GET", "/"), ("GET", "/v1/stats"), ("GET", "/metrics"), ("GET", "/v1/limits"),
        ):  # fmt: skip
            await client.request(method, target, b"1")
    slots = [services[0].traffic.of(int(time.time()) - back) for back in range(60)]
    assert sum(slot.requests for slot in slots) == 4
    assert sum(slot.latencies["write"].total() for slot in slots) == 1
    assert sum(slot.latencies["read"].total() for slot in slots) == 3


@scenario
async def test_a_read_model_that_cannot_be_read_is_a_problem() -> None:
    database = HistoryDatabase()
    async with connect(database) as client:
        database.model.broken = True
        assert (await stats(client)).problem == "not-ready"
