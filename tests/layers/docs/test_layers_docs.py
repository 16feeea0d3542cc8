"""docs/layers.md and docs/layers: every example runs, every method is named, every limit is the
code's; and layers need nothing from the engine.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import streamydb
from streamydb.client import Client
from streamydb.testing.clients import MemoryHost
from streamydb_layers import errors
from streamydb_layers.documents import FIELDS_MAX, AsyncCollection, Collection
from streamydb_layers.documents.core import PAGE_DOCUMENTS_MAX
from streamydb_layers.documents.indexes import INDEXES_MAX
from streamydb_layers.leaderboard import MEMBERS_MAX, AsyncLeaderboard, Leaderboard
from streamydb_layers.leaderboard.core import STANDINGS_MAX
from streamydb_layers.leaderboard.ranks import SCORE_MAX
from streamydb_layers.leases import TTL_MS_MAX, AsyncLeases, Leases
from streamydb_layers.names import ID_BYTES_MAX
from streamydb_layers.procedures.streamydb_queue import LANE_ITEMS, LANES, PAGE_ITEMS
from streamydb_layers.queue import CLAIM_ITEMS_MAX, AsyncQueue, Queue
from streamydb_layers.queue.core import ITEM_BYTES_MAX
from tests.support.layers import with_modules

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "layers"
ENTRY = (ROOT / "docs" / "layers.md").read_text("utf-8")
PAGES = {name: (FOLDER / f"{name}.md").read_text("utf-8")
         for name in ("documents", "queue", "leaderboard", "leases")}  # fmt: skip
LAYERS = ROOT / "layers" / "streamydb_layers"
EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, page in {**PAGES, "layers": ENTRY}.items()
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
        ("leases", (Leases, AsyncLeases)),
    ],
)
def test_both_clients_have_what_the_page_names(page: str, kinds: tuple[Any, Any]) -> None:
    blocking, awaiting = ({n for n in dir(kind) if not n.startswith("_")} for kind in kinds)
    assert blocking == awaiting
    text = PAGES[page]
    assert [name for name in blocking if not re.search(rf"[`.]{name}\b", text)] == []
    assert all(getattr(kind, name).__doc__ for kind in kinds for name in blocking)


def test_the_table_has_every_layer_its_keys_its_example_and_its_limits() -> None:
    folders = {path.name for path in LAYERS.iterdir() if (path / "core.py").exists()}
    assert folders == {*PAGES}
    for name in PAGES:
        assert f"| [{name}](layers/{name}.md) |" in ENTRY
    for client_layer in (Collection, Queue, Leaderboard, Leases):
        prefix = client_layer(Client.__new__(Client), "name").core.prefix
        assert f"`{prefix.partition('/')[0]}/<" in ENTRY
    assert f"| {FIELDS_MAX} fields in an index, {INDEXES_MAX} indexes in a collection, " in ENTRY
    assert f" {PAGE_DOCUMENTS_MAX:,} documents in a page;" in ENTRY
    assert f"| {LANES * LANE_ITEMS:,} items claimed at a time, {CLAIM_ITEMS_MAX} in one" in ENTRY
    assert f" its id {ID_BYTES_MAX} bytes |" in ENTRY
    assert f"scores of {SCORE_MAX.bit_length()} bits, {MEMBERS_MAX} members in one" in ENTRY
    assert f" {STANDINGS_MAX:,} standings in one answer |" in ENTRY
    assert f"| held for {TTL_MS_MAX // 3_600_000} hours at once," in ENTRY


def test_the_public_modules_are_those_that_layers_may_import() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each["name"].startswith("Layers "))
    allowed = [line.partition(" -> ")[2] for line in contract["ignore_imports"]]
    rows = re.findall(r"^\| (`streamydb\..*?`) \|", ENTRY, re.MULTILINE)
    assert sorted(", ".join(rows).split(", ")) == sorted(f"`{module}`" for module in allowed)


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
    for page in (PAGES["queue"], ENTRY):
        assert f" {ITEM_BYTES_MAX:,} bytes" in page
    assert f"up to {MEMBERS_MAX} members" in PAGES["leaderboard"]
