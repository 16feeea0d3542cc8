"""What `/health/ready` says while a part of the database is away."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from streamydb.facade import FacadeSettings, create_app, health
from streamydb.local.folder import PipelineStatus
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase

LATE_MS = 60_000


@pytest.fixture(autouse=True)
def _every_look_counts_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_KEPT_S", 0.0)
    monkeypatch.setattr(health, "_PATIENCE_S", 30.0)


def connect(
    database: MemoryDatabase, pipeline: Callable[[], PipelineStatus] | None = None, **more: Any
) -> InProcess:
    settings = FacadeSettings(read_timeout_s=0.05, verdict_timeout_s=0.05, **more)
    return InProcess(
        create_app(database.model, database.log, database.changes, settings, pipeline=pipeline)
    )


async def ready(client: InProcess) -> Any:
    """What the facade says that it serves, and that each kind's status fits it."""
    said = await client.request("GET", "/health/ready?for=changes")
    shown = said.json() if said.status == 200 else said.json()["health"]
    for kind in ("reads", "strong", "writes", "changes"):
        answer = await client.request("GET", f"/health/ready?for={kind}")
        assert answer.status == (200 if shown[kind] else 503), kind
        assert answer.status == 200 or answer.headers["retry-after"] == "1"
    plain = await client.request("GET", "/health/ready")
    assert plain.status == (200 if shown["reads"] else 503)
    return shown


def served(shown: Any) -> set[str]:
    return {kind for kind in ("reads", "strong", "writes", "changes") if shown[kind]}


async def put(client: InProcess, key: str = "a") -> HttpAnswer:
    return await client.request("PUT", f"/v1/kv/{key}", b"1")


def time_passes(database: MemoryDatabase) -> None:
    """Make all that is in the log wait for long already."""
    database.clock = partial(later, database.clock)


def later(clock: Callable[[], int]) -> int:
    """Much later than a clock says."""
    return clock() + LATE_MS


@scenario
async def test_all_is_well() -> None:
    async with connect(MemoryDatabase(), lambda: _status("running")) as client:
        await put(client)
        shown = await ready(client)
    assert (shown["status"], shown["why"], shown["seq"]) == ("ready", [], 1)
    assert served(shown) == {"reads", "strong", "writes", "changes"}
    assert (shown["age_s"], shown["waiting_s"]) == (0.0, 0.0)


@scenario
async def test_a_pipeline_elsewhere_that_is_dead() -> None:
    """The first write that waits too long tells; the last snapshot can be read, with its age."""
    database = MemoryDatabase()
    now_ms = database.clock()
    database.clock = lambda: now_ms
    async with connect(database) as client:
        await put(client)
        database.executing = False
        assert (await put(client, "b")).problem == "verdict-unknown"
        time_passes(database)
        shown = await ready(client)
        assert served(shown) == {"reads", "changes"}
        assert shown["status"] == "degraded"
        assert shown["why"] == ["records have waited 60 s for the pipeline"]
        assert shown["waiting_s"] == pytest.approx(60, abs=5)
        assert shown["age_s"] == pytest.approx(60, abs=5)
        read = await client.request("GET", "/v1/kv/a?consistency=snapshot")
        assert (read.status, read.headers["streamydb-snapshot"]) == (200, "1")
        late = await client.request("GET", "/v1/kv/a")
        assert (late.problem, late.json()["latest"]) == ("read-model-behind", 1)
        database.executing = True
        database.run()
        assert (await ready(client))["status"] == "ready"


@scenario
async def test_a_look_that_fails_is_no_good_sign() -> None:
    """Whatever it fails with; the next one is another."""
    faults: list[Exception] = [LookupError(), RuntimeError()]

    def pipeline() -> PipelineStatus:
        if faults:
            raise faults.pop()
        return _status("running")

    async with connect(MemoryDatabase(), pipeline) as client:
        for name in ("RuntimeError", "LookupError"):
            shown = (await client.request("GET", "/health/ready")).json()
            assert shown["why"] == [f"the log cannot be looked at ({name})"]
        assert (await ready(client))["why"] == []


@scenario
async def test_a_pipeline_here_that_is_dead_is_seen_before_a_write_waits() -> None:
    database = MemoryDatabase()
    state = "failed"
    async with connect(database, lambda: _status(state)) as client:
        shown = await ready(client)
        assert served(shown) == {"reads", "strong", "changes"}
        assert shown["why"] == ["the pipeline is failed"]
        state = "running"
        assert (await ready(client))["writes"]


@scenario
async def test_a_pipeline_elsewhere_has_taken_over() -> None:
    """Results that are newer than the last word of the pipeline here are another pipeline's."""
    database = MemoryDatabase()
    long_ago = int(1000 * time.time()) - LATE_MS
    async with connect(database, lambda: _status("failed", long_ago)) as client:
        assert not (await ready(client))["writes"]
        await put(client)
        assert (await ready(client))["writes"]


@scenario
async def test_a_pipeline_that_never_ran_here_is_not_missed() -> None:
    async with connect(MemoryDatabase(), PipelineStatus) as client:
        assert (await ready(client))["status"] == "ready"


@scenario
async def test_a_read_model_that_stands_still() -> None:
    """Writes are decided; reads of the present are not answered."""
    database = MemoryDatabase()
    async with connect(database) as client:
        database.resolving = False
        await put(client)
        time_passes(database)
        shown = await ready(client)
        assert served(shown) == {"reads", "writes", "changes"}
        assert shown["why"] == ["the read model is 60 s behind the pipeline"]
        assert shown["waiting_s"] == 0


@scenario
async def test_kafka_is_away() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await put(client)
        await ready(client)
        database.log.refusing = True
        shown = await ready(client)
        assert served(shown) == {"reads", "changes"}
        assert shown["why"] == ["Kafka does not answer"]
        assert shown["waiting_s"] is None
        assert shown["age_s"] < 20
        before = shown["age_s"]
        await asyncio.sleep(0.01)
        assert (await ready(client))["age_s"] > before


@scenario
async def test_kafka_that_hangs_holds_no_probe_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PATIENCE_S", 0.01)
    database = MemoryDatabase()
    database.log.stalled = asyncio.Event()
    async with connect(database) as client:
        assert (await ready(client))["writes"]  # it may be slow for a moment
        monkeypatch.setattr(health, "_SILENT_S", 0.0)
        assert served(await ready(client)) == {"reads", "changes"}
        database.log.stalled.set()
        monkeypatch.setattr(health, "_PATIENCE_S", 30.0)
        assert (await ready(client))["status"] == "ready"


@scenario
async def test_the_age_grows_while_a_look_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load a look takes seconds, in which nobody knows what has been shown since."""
    monkeypatch.setattr(health, "_KEPT_S", 0.0)
    database = MemoryDatabase()
    async with connect(database) as client:
        await put(client)
        assert (await ready(client))["age_s"] == 0
        monkeypatch.setattr(health, "_PATIENCE_S", 0.01)
        database.log.stalled = asyncio.Event()
        first = (await ready(client))["age_s"]
        await asyncio.sleep(0.02)
        assert 0 < first < (await ready(client))["age_s"]
        database.log.stalled.set()
        monkeypatch.setattr(health, "_PATIENCE_S", 30.0)
        assert (await ready(client))["age_s"] == 0


@scenario
async def test_the_age_counts_from_what_is_shown_if_that_is_newer_than_the_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await put(client)
        await ready(client)
        time_passes(database)
        await put(client)
        monkeypatch.setattr(health, "_PATIENCE_S", 0.01)
        database.log.stalled = asyncio.Event()
        assert 0 < (await ready(client))["age_s"] < LATE_MS / 2_000
        database.log.stalled.set()


@scenario
async def test_a_record_of_a_broker_whose_clock_is_behind_has_not_waited_for_long() -> None:
    """It was appended after what was committed before it, so it cannot be older."""
    database = MemoryDatabase()
    async with connect(database) as client:
        await put(client)
        database.executing = False
        assert (await put(client, "b")).problem == "verdict-unknown"
        database.log.stamps[1] -= LATE_MS
        shown = await ready(client)
        assert max(shown["waiting_s"], shown["age_s"]) < LATE_MS / 2_000


@scenario
async def test_a_read_model_that_cannot_be_read() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await put(client)
        database.model.broken = True
        shown = await ready(client)
    assert served(shown) == {"writes", "changes"}
    assert (shown["seq"], shown["age_s"]) == (None, None)


@scenario
async def test_asking_often_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_KEPT_S", 60.0)
    database = MemoryDatabase()
    async with connect(database) as client:
        await until(lambda: database.log.looks == 1)  # the reader's, which begins
        for _ in range(5):
            await ready(client)
    assert database.log.looks == 2


@scenario
async def test_the_console_is_told() -> None:
    database = MemoryDatabase()
    async with connect(database, lambda: _status("failed")) as client:
        stats = (await client.request("GET", "/v1/stats")).json()
    assert stats["health"]["writes"] is False


ASKED = {
    "reads": ("GET", "/v1/kv/a?consistency=snapshot", b""),
    "strong": ("GET", "/v1/kv/a", b""),
    "writes": ("PUT", "/v1/kv/a", b"1"),
}


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(12))
@scenario
async def test_what_it_says_it_serves_is_served_and_nothing_else(seed: int) -> None:
    """Parts stop and go on by chance; a record that has waited long lets every stop show."""
    rng = random.Random(f"health {seed}")
    database, local = MemoryDatabase(), rng.random() < 0.5
    log, model = database.log, database.model

    def status() -> PipelineStatus:
        state = "running" if database.executing or not local else "failed"
        return _status(state, database.clock())

    async with connect(database, status) as client:
        await put(client)
        for _ in range(10):
            part, lever = rng.choice(
                [(database, "executing"), (database, "resolving"), (log, "refusing"),
                 (model, "broken")]
            )  # fmt: skip
            setattr(part, lever, not getattr(part, lever))
            if not local or rng.random() < 0.5:
                log.records.append(b'{"id": "%d", "updates": []}' % len(log.records))
                log.stamps[len(log.records) - 1] = log.time_ms()
            time_passes(database)
            database.run()
            shown = await ready(client)
            answers = {kind: await client.request(*asked) for kind, asked in ASKED.items()}
            found = {kind for kind, answer in answers.items() if answer.status < 300}
            assert served(shown) - {"changes"} == found, (shown, answers)
            assert (shown["status"] == "ready") == (len(found) == 3)


def _status(state: str, updated_ms: int | None = None) -> PipelineStatus:
    return PipelineStatus(state=state, updated_ms=updated_ms or int(1000 * time.time()))
