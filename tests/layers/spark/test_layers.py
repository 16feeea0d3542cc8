"""All layers on a real Kafka, a real Spark and a real facade, at once, with a replay at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import streamydb
from streamydb.client import Client, View
from streamydb_layers.documents import Collection
from streamydb_layers.errors import ClaimLostError
from streamydb_layers.leaderboard import Leaderboard
from streamydb_layers.queue import Claim, Depth, Queue
from tests.support.layers import together

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

ORDERS, SHOPS, WORKERS = 40, 3, 4


def command(home: Path, *arguments: str) -> str:
    """What a command line prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=300,
        check=False, env={**os.environ, "STREAMYDB_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def shop(url: str, number: int) -> None:
    """Take orders: a document and an item of work in one transaction each."""
    with streamydb.connect(url, timeout_s=120) as client:
        orders, jobs = Collection(client, "orders"), Queue(client, "jobs")
        for place in range(number, ORDERS, SHOPS):
            order = f"order-{place:02}"
            orders.insert({"place": place, "state": "new", "shop": number}, document_id=order)
            jobs.enqueue(order, item_id=order)


def work(url: str, number: int, done: list[Claim]) -> None:
    """Deliver orders: document, points and end of the claim; every seventh claim is forgotten."""
    with streamydb.connect(url, timeout_s=120) as client:
        orders, jobs = Collection(client, "orders"), Queue(client, "jobs", attempts_max=50)
        board = Leaderboard(client, "season")
        while len(done) < ORDERS:
            for claim in jobs.claim(3, timeout_s=5):
                if claim.number % 7 == 0 and claim.attempts == 1:
                    continue

                def deliver(view: View, claim: Claim = claim) -> None:
                    orders.within(view).update(claim.value, set={"state": "sent"}, inc={"sent": 1})
                    jobs.complete_in(view, claim)

                try:
                    client.run(deliver)
                except ClaimLostError:
                    continue
                done.append(claim)
                board.add(f"worker-{number}", 1)


def index(url: str) -> None:
    """Make an index while orders come in."""
    with streamydb.connect(url, timeout_s=120) as client:
        Collection(client, "orders").create_index("by_state", ["state", "-place"])


def judged(client: Client, done: list[Claim]) -> None:
    """Nothing was lost or done twice, and every layer says the same."""
    orders = Collection(client, "orders").find("by_state", equals=["sent"], limit=100)
    assert [found.data["place"] for found in orders.documents] == list(range(ORDERS))[::-1]
    assert {found.data["sent"] for found in orders.documents} == {1}
    assert sorted(claim.value for claim in done) == [f"order-{n:02}" for n in range(ORDERS)]
    assert {claim.attempts > 1 for claim in done if claim.number % 7 == 0} == {True}
    assert Queue(client, "jobs").depth() == Depth(0, 0)
    standings = Leaderboard(client, "season").top(WORKERS)
    assert sum(standing.score for standing in standings) == ORDERS
    assert [s.rank for s in standings] == list(range(1, len(standings) + 1))
    for standing in standings:
        assert Leaderboard(client, "season").rank(standing.member) == standing


def test_orders_are_documents_jobs_and_points(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = partial(command, home, "streamydb.cli")
    try:
        up = json.loads(run("up", "--json", "--master", "local[2]"))
        files = command(home, "streamydb_layers").split()
        run("procedures", "deploy", *files)
        done: list[Claim] = []
        tasks: list[Callable[[], object]] = [partial(index, up["http"])]
        tasks += [partial(shop, up["http"], number) for number in range(SHOPS)]
        tasks += [partial(work, up["http"], number, done) for number in range(WORKERS)]
        together(tasks)
        with streamydb.connect(up["http"]) as client:
            assert not Queue(client, "jobs").deploy(Path(up["folder"]) / "procedures")
            judged(client, done)
        assert json.loads(run("check", "--json"))["ok"]
    finally:
        run("down")
