"""`/v1/pipelines`: status files of this machine, and what is heard in Kafka."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamydb.facade import FacadeSettings, about, create_app
from streamydb.facade.about import About, PipelineMessages, about_database
from streamydb.facade.console.pipelines import PipelineWatch
from streamydb.kafka.digests import ShardDigests, ToldDigest
from streamydb.kafka.presence import Seen
from streamydb.kafka.reader import ReadingError
from streamydb.local.folder import DatabaseFolder, PipelineStatus
from streamydb.settings import Settings
from streamydb.testing.in_process import InProcess, scenario, until
from tests.support.history import HistoryDatabase

HEARD = Seen(
    name="", pipeline="abcdefgh1234", role="leading", epoch=3, resolved=7, ready=True, age_s=0.2
)
DIGESTS = ShardDigests(seq=10, shard=0, told=[ToldDigest(pipeline="a", state="b", outcomes="c")])


async def shown(known: About | None, target: str = "/v1/pipelines") -> Any:
    database = HistoryDatabase()
    app = create_app(database.model, database.log, database.changes, FacadeSettings(), about=known)
    async with InProcess(app) as client:
        answer = await client.request("GET", target)
        assert answer.status == 200, answer
        return answer.json()


@scenario
async def test_all_that_is_known_is_shown() -> None:
    status = PipelineStatus(state="running", role="following", behind=5, updated_ms=1, pid=7)
    known = About(
        "bank", lambda: {"b": status}, lambda: PipelineMessages(heard=[HEARD], digests=[DIGESTS])
    )
    found = await shown(known)
    assert (found["database"], found["why"]) == ("bank", [])
    (here,) = found["here"]
    assert (here["name"], here["role"], here["behind"]) == ("b", "following", 5)
    assert not {"pid", "error"} & set(here)
    assert found["heard"] == [msgspec.to_builtins(HEARD)]
    assert found["digests"] == [msgspec.to_builtins(DIGESTS)]
    assert (await shown(known, "/v1/stats"))["database"] == "bank"


@scenario
async def test_nothing_is_known_without_kafka() -> None:
    found = await shown(None)
    assert found == {"database": "", "here": [], "heard": None, "digests": None, "why": []}


@scenario
async def test_a_status_file_that_cannot_be_read_is_left_out() -> None:
    def broken() -> dict[str, PipelineStatus]:
        raise OSError

    assert (await shown(About("bank", broken)))["here"] == []


@scenario
async def test_kafka_is_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamydb.facade.console.pipelines._PATIENCE_S", 0.0)
    answered, asked = threading.Event(), []

    def told() -> PipelineMessages:
        asked.append(1)
        answered.wait(60)
        return PipelineMessages(heard=[HEARD])

    watch = PipelineWatch(About("bank", told=told))
    for _ in range(3):
        assert json.loads(await watch.report())["why"] == ["Kafka has not answered yet"]
    assert len(asked) == 1
    answered.set()
    monkeypatch.setattr("streamydb.facade.console.pipelines._PATIENCE_S", 60.0)
    assert json.loads(await watch.report())["heard"] == [msgspec.to_builtins(HEARD)]
    assert len(asked) == 1


@scenario
async def test_a_look_that_fails_says_so_and_what_was_known_is_not_shown_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamydb.facade.console.pipelines._PATIENCE_S", 60.0)
    monkeypatch.setattr("streamydb.facade.console.pipelines._KEPT_S", 0.0)
    answers = [PipelineMessages(heard=[HEARD])]
    watch = PipelineWatch(About("bank", told=answers.pop))
    assert json.loads(await watch.report())["heard"] == [msgspec.to_builtins(HEARD)]
    failed = json.loads(await watch.report())
    assert (failed["heard"], failed["why"]) == (None, ["Kafka cannot be asked (IndexError)"])


@scenario
async def test_those_who_wait_for_kafka_hold_no_thread_that_reads_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamydb.facade.console.pipelines._PATIENCE_S", 60.0)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    answered, asked = threading.Event(), threading.Event()

    def told() -> PipelineMessages:
        asked.set()
        answered.wait(60)
        return PipelineMessages(heard=[HEARD])

    watch = PipelineWatch(About("bank", told=told))
    reports = [asyncio.create_task(watch.report()) for _ in range(2)]
    try:
        await until(asked.is_set)
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(answered.is_set) is False
    finally:
        answered.set()
    for report in reports:
        assert json.loads(await report)["heard"] == [msgspec.to_builtins(HEARD)]


def test_the_facts_of_a_database_on_kafka(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database="bank")
    place = DatabaseFolder(tmp_path, "bank")
    status = msgspec.json.encode(PipelineStatus(state="stopped", role="leading", updated_ms=5))
    for name in ("", "second"):
        place.status_file_of(name).parent.mkdir(parents=True, exist_ok=True)
        place.status_file_of(name).write_bytes(status)
    monkeypatch.setattr(about, "seen", lambda *_: [HEARD])
    monkeypatch.setattr(about, "last_digests", lambda *_: [DIGESTS])
    known = about_database(settings)
    assert (known.database, set(known.here())) == ("bank", {"", "second"})
    assert known.told is not None
    assert known.told() == PipelineMessages(heard=[HEARD], digests=[DIGESTS])

    def refused(*_: object) -> Any:
        raise ReadingError("this user may not read bank.digests")

    monkeypatch.setattr(about, "last_digests", refused)
    assert known.told() == PipelineMessages(
        heard=[HEARD], why=["this user may not read bank.digests"]
    )


def test_a_pipeline_that_never_ran_is_not_shown(tmp_path: Path) -> None:
    assert about_database(Settings(home=tmp_path, database="bank")).here() == {}
