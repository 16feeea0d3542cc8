"""Clients on two facades while everything under them is killed; what they saw must be explainable.

FAULTS 4, 25 and 27 through REST. Every test ends with the checkers of histories and with a serial
replay of the log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamydb.testing.database import wait_for
from tests.support.serving import Clients, Served, clients

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

PATIENCE = {"STREAMYDB_SERVE_VERDICT_TIMEOUT_S": "3", "STREAMYDB_SERVE_READ_TIMEOUT_S": "3"}


def put(url: str, key: str, value: int, txn_id: str, **headers: str) -> httpx.Response:
    sent = {"Idempotency-Key": txn_id, **headers}
    return httpx.put(f"{url}/v1/kv/{key}", content=json.dumps(value), headers=sent, timeout=30)


def get(url: str, key: str, **query: Any) -> httpx.Response:
    return httpx.get(f"{url}/v1/kv/{key}", params=query, timeout=30)


def slug(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return str(answer.json()["type"]).rpartition("/")[2]


def kill_the_pipeline(db: Served) -> None:
    """FAULTS 25: no verdict in time; asking later, anywhere, gives the true one."""
    one, other = db.urls
    db.kill_pipeline()
    late = put(one, "late", 1, "late-1", **{"If-None-Match": "*"})
    assert (late.status_code, slug(late)) == (504, "verdict-unknown")
    assert late.json()["id"] == "late-1"
    put_off = put(other, "late", 2, "late-2", Prefer="wait=1", **{"If-None-Match": "*"})
    assert (put_off.status_code, put_off.json()["status"]) == (202, "unknown")
    again = put(other, "late", 1, "late-1", **{"If-None-Match": "*"})
    assert slug(again) == "verdict-unknown"
    db.facades[0].kill()  # what it remembered is gone
    db.facades[0].start()
    db.start_pipeline()
    db.wait_ready(0)

    def verdict(url: str, answer: httpx.Response) -> dict[str, Any]:
        place = url + answer.headers["location"]
        wait_for(lambda: httpx.get(place, timeout=30).status_code == 200, "a late verdict")
        found: dict[str, Any] = httpx.get(place, timeout=30).json()
        return found

    for url in db.urls:
        assert verdict(url, late)["status"] == "committed"
        assert verdict(url, put_off)["code"] == "check-failed"
    seq = verdict(one, late)["seq"]
    wait_for(lambda: put(one, "late", 1, "late-1", **{"If-None-Match": "*"}).status_code == 201,
             "the same verdict for the same bytes")  # fmt: skip
    repeated = put(other, "late", 1, "late-1", **{"If-None-Match": "*"})
    assert (repeated.status_code, repeated.json()["seq"]) == (201, seq)
    assert get(other, "late").headers["etag"] == f'"{seq}"'


def kill_a_facade(db: Served) -> None:
    db.facades[1].kill()
    db.facades[1].start()
    db.wait_ready(1)


def restart_on_a_stale_read_model(db: Served) -> None:
    """FAULTS 27: no session goes back: it waits, or is told to, until the read model is there."""
    one, other = db.urls
    assert put(one, "fresh", 1, "fresh-1").status_code == 200
    wait_for(lambda: get(other, "fresh").status_code == 200, "the read model")
    db.read_models[1].kill()
    db.facades[1].kill()
    seq = put(one, "fresh", 2, "fresh-2").json()["seq"]
    db.facades[1].start()
    wait_for(lambda: db.answers(1, "/health/live"), "a live facade")
    behind = get(other, "fresh", consistency="session", min_version=seq)
    assert (behind.status_code, slug(behind)) == (503, "read-model-behind")
    assert int(behind.headers["retry-after"]) >= 1
    assert slug(get(other, "fresh", at=seq)) == "read-model-behind"
    assert slug(get(other, "fresh")) == "read-model-behind"
    old = get(other, "fresh", consistency="snapshot")  # and says how old it is
    assert old.json() == 1
    assert int(old.headers["streamydb-snapshot"]) < seq
    db.read_models[1].start()
    wait_for(lambda: get(other, "fresh", consistency="session", min_version=seq).is_success,
             "the read model")  # fmt: skip
    assert get(other, "fresh", consistency="snapshot").json() == 2


def kill_the_broker(db: Served) -> None:
    db.broker.kill()
    db.broker.start()


FAULTS: list[Callable[[Served], None]] = [
    kill_the_pipeline, kill_a_facade, restart_on_a_stale_read_model, kill_the_broker
]  # fmt: skip


def kill_a_read_model(db: Served) -> None:
    db.read_models[0].kill()
    db.read_models[0].start()


def kill_a_broker_for_a_while(db: Served) -> None:
    """All is down at once, and comes back in another order."""
    db.broker.kill()
    db.kill_pipeline()
    db.facades[0].kill()
    db.facades[0].start()
    db.broker.start()
    db.start_pipeline()


def restart_the_pipeline(db: Served) -> None:
    db.kill_pipeline()
    db.start_pipeline()


MORE: list[Callable[[Served], None]] = [
    kill_a_facade, kill_a_read_model, kill_a_broker_for_a_while, restart_the_pipeline,
    kill_the_broker,
]  # fmt: skip


def judge(db: Served, running: Clients) -> None:
    said = running.stop()
    print(said)  # noqa: T201 - the figures of a long run
    assert db.assert_serial().ok


@pytest.mark.fault(
    4,
    "SIGKILL of the broker under clients whose histories are judged",
    "histories explained; equal to the serial replay",
)
@pytest.mark.fault(
    25,
    "SIGKILL of pipeline and facade between append and verdict",
    "202 and 504 with the id; the true verdict later, anywhere",
)
@pytest.mark.fault(
    27,
    "SIGKILL of a read model and its facade, which comes back alone",
    "503 until it has caught up; no session goes back",
)
@pytest.mark.long
def test_histories_while_each_part_is_killed_once(tmp_path: Path) -> None:
    with Served(tmp_path, environment=PATIENCE) as db, clients(db) as running:
        for fault in FAULTS:
            running.progressed(100)
            fault(db)
        running.progressed(100)
        judge(db, running)


@pytest.mark.fault(
    4,
    "SIGKILL of every part in turn, in two shapes",
    "histories explained; equal to the serial replay",
)
@pytest.mark.long
@pytest.mark.parametrize(("shards", "partitions"), [(1, 1), (2, 2)])
def test_histories_of_minutes_with_rotating_kills(
    tmp_path: Path, shards: int, partitions: int, injected: Callable[..., None]
) -> None:
    rng = random.Random(shards)
    with (
        Served(tmp_path, environment=PATIENCE, shards=shards, partitions=partitions) as db,
        clients(db, 24) as running,
    ):
        for _ in range(4):
            for fault in rng.sample(MORE, len(MORE)):
                running.progressed(rng.randint(50, 400))
                fault(db)
                injected(1)
        running.progressed(300)
        judge(db, running)
