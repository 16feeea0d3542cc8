"""Clients that record what a served facade in memory tells them, over real sockets."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from histories import AppendOperation, Get, History, ScanOperation, WriteOperation, check_history
from histories.answers import told
from histories.campaign import Campaign, CampaignError, files, run
from histories.main import app
from histories.recorder import HttpRecorder
from histories.records import Operation
from histories.watcher import parse_event
from histories.workload import HistoryClient, Shape
from tests.support.served import serving

RESTLESS = Shape(ttl_ms=500, impatient=0.1, put_off=0.3, give_up=0.7, leave=0.1)
"""Of 600 operations some 30 stay unknown, over 100 are cut off or put off: never none by chance."""


@pytest.fixture
def url() -> Iterator[str]:
    with serving() as facade:
        yield facade.url


def stopped_after(folder: Path, operations: int) -> threading.Thread:
    """End a campaign once its clients have done so much."""
    done = threading.Event()

    def run_on() -> None:
        path = folder / "clients-0.jsonl"
        while not done.wait(0.02):
            if path.exists() and path.read_bytes().count(b"\n") >= operations:
                (folder / "stop").touch()
                return

    thread = threading.Thread(target=run_on, daemon=True)
    thread.start()
    return thread


def has_committed(line: str) -> bool:
    """Whether an operation was answered, and no condition kept it from happening."""
    return '"outcome":"ok"' in line and '"committed":false' not in line


@pytest.mark.randomized
def test_a_campaign_is_recorded_and_judged(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    stopped_after(folder, 600)
    campaign = Campaign(urls=[url], folder=folder, seconds=120, clients=8, shape=RESTLESS)
    history = run(campaign)
    report = check_history(history)
    assert report.ok, report.text()
    kinds = {(type(op.request), op.outcome) for op in history.operations}
    assert {
        (AppendOperation, "ok"),
        (WriteOperation, "ok"),
        (Get, "ok"),
        (ScanOperation, "ok"),
    } <= kinds
    attempts = {note for op in history.operations for note in op.attempts[:-1]}
    assert attempts & {"202", "ReadTimeout"}, "no answer was cut off or put off"
    assert any(operation.outcome == "unknown" for operation in history.operations)
    assert max(len(page) for op in history.operations if op.told for page in [op.told.pages]) > 1
    for watch in history.watches:
        connections = {delivery.connection for delivery in history.deliveries[watch.watcher]}
        assert len(connections) > 1, "no watcher was cut off"
    assert report.deliveries > 600
    asked = [op.request for op in history.operations if isinstance(op.request, AppendOperation)]
    removed = {key for request in asked for key in request.removes}
    gone = {c.key for some in history.deliveries.values() for d in some for c in d.changes
            if c.after is None} - removed  # fmt: skip
    assert any(gone & request.ttls.keys() for request in asked), "no key has ended"

    said = CliRunner().invoke(app, ["check", str(folder), "--json"])
    assert (said.exit_code, json.loads(said.stdout)["operations"]) == (0, report.operations)
    lines = (folder / "clients-0.jsonl").read_text().splitlines(keepends=True)
    lost = next(line for line in lines if '"appends":{"l/' in line and has_committed(line))
    (folder / "clients-0.jsonl").write_text("".join(line for line in lines if line != lost))
    said = CliRunner().invoke(app, ["check", str(folder)])
    assert said.exit_code == 3
    assert "[phantom-element]" in said.stdout
    with pytest.raises(CampaignError, match="has a history already"):
        run(Campaign(urls=[url], folder=folder))


def test_a_folder_without_a_history(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="holds no history"):
        files(tmp_path)
    assert check_history(History()).ok


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_answers_that_the_workload_never_should_get_are_faults(status: int) -> None:
    body = b'{"type":"/problems/internal","detail":"?"}'
    with pytest.raises(ValueError, match=f"{status} for"):
        told(AppendOperation("t"), status, {}, body)


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [([409], "failed"), ([504, 409], "unknown"), ([504, 200], "unknown"), ([504, 202, 201], "ok")],
)
def test_a_copy_that_comes_too_late_says_nothing_of_one_before_it(
    statuses: list[int], outcome: str
) -> None:
    bodies = {
        200: b'{"status":"rejected","seq":3,"code":"deadline-passed"}',
        201: b'{"status":"committed","seq":3}', 202: b"{}",
        409: b'{"type":"/problems/deadline-passed"}', 504: b'{"type":"/problems/verdict-unknown"}',
    }  # fmt: skip
    left = iter(statuses)

    def answer(_: httpx.Request) -> httpx.Response:
        status = next(left)
        return httpx.Response(status, content=bodies[status])

    async def operation() -> Operation:
        rng, shape = random.Random(1), Shape(impatient=0, put_off=0, give_up=0)
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            recorder = HttpRecorder(http, ["http://facade"], rng, lambda _: None, shape)
            client = HistoryClient(0, shape, rng, lambda: "t")
            return await recorder.perform(client, WriteOperation("t", "r/1", "1"))

    assert asyncio.run(operation()).outcome == outcome
    assert next(left, None) is None, "it asks until it knows"


def test_a_comment_is_no_event() -> None:
    assert parse_event(b": heartbeat") == ("", None, None)
    assert parse_event(b'id: 7\nevent: resolved\ndata: {"resolved":7}').seq == 7
