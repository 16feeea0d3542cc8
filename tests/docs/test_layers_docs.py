"""docs/layers: every example runs, every method is named, every limit is the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import streamydb
from streamydb.client import Client
from streamydb.client.testing import MemoryHost
from streamydb.layers import errors
from streamydb.layers.documents import FIELDS_MAX, AsyncCollection, Collection
from streamydb.layers.leaderboard import MEMBERS_MAX, AsyncLeaderboard, Leaderboard
from streamydb.layers.procedures.streamydb_queue import LANE_ITEMS, LANES, PAGE_ITEMS
from streamydb.layers.queue import CLAIM_ITEMS_MAX, AsyncQueue, Queue
from tests.layers import with_modules

FOLDER = Path(__file__).parents[2] / "docs" / "layers"
PAGES = {name: (FOLDER / f"{name}.md").read_text("utf-8")
         for name in ("documents", "queue", "leaderboard")}  # fmt: skip
EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, example in enumerate(
        re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL), 1
    )
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryHost() as host:
        Queue(with_modules(host).connect(), "any").deploy(None)
        before = len(host.database.log.records)

        def connect(url: str) -> Client:
            assert url == "http://127.0.0.1:8080"
            return host.connect()

        monkeypatch.setattr(streamydb, "connect", connect)
        exec(compile(example, "docs/layers", "exec"), {})  # noqa: S102 - our own page
        assert len(host.database.log.records) > before


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        ("documents", (Collection, AsyncCollection)),
        ("queue", (Queue, AsyncQueue)),
        ("leaderboard", (Leaderboard, AsyncLeaderboard)),
    ],
)
def test_both_clients_have_what_the_page_names(page: str, kinds: tuple[Any, Any]) -> None:
    blocking, awaiting = ({n for n in dir(kind) if not n.startswith("_")} for kind in kinds)
    assert blocking == awaiting
    text = PAGES[page]
    assert [name for name in blocking if not re.search(rf"[`.]{name}\b", text)] == []
    assert all(getattr(kind, name).__doc__ for kind in kinds for name in blocking)


def test_named_errors_and_limits_are_those_of_the_code() -> None:
    text = "".join(PAGES.values())
    named = set(re.findall(r"`(\w+Error)`", text)) - {"OutcomeUnknownError", "SnapshotGoneError"}
    assert named <= set(errors.__all__)
    assert len(named) >= 7
    assert f"up to {FIELDS_MAX}, each ascending" in PAGES["documents"]
    assert f"up to {CLAIM_ITEMS_MAX}," in PAGES["queue"]
    assert f"one of {LANES} *lanes*" in PAGES["queue"]
    assert f"*pages* of {PAGE_ITEMS}" in PAGES["queue"]
    assert f"At most {LANES * LANE_ITEMS:,} items" in PAGES["queue"]
    assert f"up to {MEMBERS_MAX} members" in PAGES["leaderboard"]
