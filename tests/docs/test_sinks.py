"""The example sinks, each on a topic that goes on, is compacted, or is made anew: no key is lost.

`make test-connect` runs them on Kafka.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from streamydb.kafka.connect.copier import NUL_HEADER
from tests.clients.toolchain import needs
from tests.support.seeds import seeds
from tests.support.sinks import EXAMPLES, Topic, run_sink

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "sinks.md").read_text("utf-8")


def rows_of_sqlite(file: Path) -> dict[str, str]:
    with closing(sqlite3.connect(file)) as table:
        return dict(table.execute("SELECT key, value FROM kv"))


def rows_of_file(file: Path) -> dict[str, str]:
    rows: dict[str, str] = json.loads(file.read_text("utf-8"))["rows"]
    return rows


SINKS: dict[str, Callable[[Path], dict[str, str]]] = {
    "to_sqlite.py": rows_of_sqlite, "to_file.mjs": rows_of_file,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(seeds(8, 2)))
@pytest.mark.parametrize("program", SINKS)
def test_a_sink_equals_its_topic_whatever_becomes_of_that(
    program: str, seed: int, tmp_path: Path
) -> None:
    if program.endswith(".mjs"):
        needs("node")
    rng, rows_of = random.Random(seed), SINKS[program]
    topic = Topic(rng, "first", 1_000)
    for step in range(5):
        topic.append(rng.randrange(2, 60))
        if rng.random() < 0.4:
            topic.compact()
        assert rows_of(run_sink(program, topic, tmp_path)) == topic.state, step
        if rng.random() < 0.5:  # made anew, of the same changes or of others
            topic = Topic(rng, rng.choice(["first", "second"]), 2_000 * (step + 1))


@pytest.mark.parametrize("program", SINKS)
def test_a_record_that_was_compacted_away_begins_a_sink_anew(program: str, tmp_path: Path) -> None:
    """Nothing tells then whether it is the same topic."""
    if program.endswith(".mjs"):
        needs("node")
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        topic = Topic(random.Random(seed), "first", 1_000)
        topic.append(40)
        run_sink(program, topic, folder)
        topic.append(80)
        topic.compact()
        assert SINKS[program](run_sink(program, topic, folder)) == topic.state


@pytest.mark.parametrize("program", SINKS)
def test_a_file_of_an_earlier_release_begins_anew(program: str, tmp_path: Path) -> None:
    """It has the next offsets, which any topic may have."""
    if program.endswith(".mjs"):
        needs("node")
        (tmp_path / "bank").write_text('{"rows":{"dead":"1"},"next":{"0":"30","1":"30"}}')
    else:
        with closing(sqlite3.connect(tmp_path / "bank")) as table, table:
            table.execute("CREATE TABLE kv (key TEXT PRIMARY KEY, value TEXT, version INTEGER)")
            table.execute("INSERT INTO kv VALUES ('dead', '1', 1)")
    topic = Topic(random.Random(1), "first", 1_000)
    topic.append(50)
    assert SINKS[program](run_sink(program, topic, tmp_path)) == topic.state


def test_the_recipe_leaves_out_keys_that_postgresql_cannot_store() -> None:
    """By the header that the copy gives to records of such keys; `make test-connect` runs it."""
    config = json.loads(PAGE.split("```json\n")[1].split("```")[0])["config"]
    assert config["predicates.nul.name"] == NUL_HEADER
    assert config["transforms.nul.type"].endswith(".Filter")
    assert config[f"predicates.{config['transforms.nul.predicate']}.type"].endswith("HasHeaderKey")


def test_every_sink_keeps_what_tells_its_topic_from_another() -> None:
    named = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert named == {*SINKS, "to_parquet.py"}
    for name in named:
        assert f"examples/sinks/{name}" in PAGE
        text = (EXAMPLES / name).read_text("utf-8")
        assert "mark_of(" in text or "markOf(" in text or "topicId()" in text


ASSIGNED = re.compile(
    r"""[\w\])]\[(?!['"\d]|at\]|\w+\.length)[^\]\n]+\]\s*(\?\?|\|\||\+)?=(?![=>])"""
)
"""An assignment to what a variable names, as in `rows[key] = value`, but for places in arrays."""


@pytest.mark.parametrize("folder", ["examples", "clients/typescript/src", "streamydb/facade"])
def test_no_script_uses_an_object_as_a_map(folder: str) -> None:
    """There `__proto__` is no key, and `toString` one that is there before it was put."""
    assert ASSIGNED.search("state.rows[name] = 1")
    files = [
        path
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".js", ".mjs", ".ts", ".html"} and "node_modules" not in path.parts
    ]
    assert files
    found = {str(path): ASSIGNED.findall(path.read_text("utf-8")) for path in files}
    assert {path: each for path, each in found.items() if each} == {}
