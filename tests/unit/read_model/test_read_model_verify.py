"""A damaged read model is found, and the keys that differ are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.read_model import (
    ChangesExpiredError,
    ModelComparison,
    ReadModel,
    StoreFailedError,
    verify,
)
from streamydb.read_model.rows import Row
from streamydb.settings import Settings
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import SETTINGS, follow, resolve, rewritten, write


def verdict(folder: Path, topic: MemoryTopic) -> ModelComparison:
    return verify(folder / "model", SETTINGS, folder / "scratch", source=MemorySource(topic))


def damage(model: ReadModel, key: bytes, seq: int, row: Row | None) -> None:
    """Change a version behind the store's back; None: remove it."""
    new = [] if row is None else [row]
    rewritten(
        model, lambda rows: [*new, *(old for old in rows if (old.key, old.seq) != (key, seq))]
    )


def test_a_sound_read_model_is_what_the_topic_says(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    assert verdict(tmp_path, topic) == ModelComparison(5, 1, [])


def test_one_that_is_behind_is_compared_where_it_is(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    write(topic, 0, 6, "c", "6")
    resolve(topic, 6)
    assert verdict(tmp_path, topic) == ModelComparison(5, 1, [])


def test_an_empty_one_is_sound(tmp_path: Path, model: ReadModel, topic: MemoryTopic) -> None:
    assert model.latest().seq == 0
    assert verdict(tmp_path, topic) == ModelComparison(0, 0, [])


def test_every_key_that_differs_is_named(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    for seq, key in ((6, "é"), (7, "z"), (8, "m"), (9, "same")):
        write(topic, 0, seq, key, "1")
    resolve(topic, 9)
    follow(model, topic)
    damage(model, b"b", 4, Row(b"b", 4, 40, b"id4", b"[5]"))
    damage(model, "é".encode(), 6, None)
    damage(model, b"extra", 3, Row(b"extra", 3, 30, b"id3", b"1"))
    damage(model, b"m", 8, Row(b"m", 8, 81, b"id8", b"1"))
    assert verdict(tmp_path, topic) == ModelComparison(9, 5, ["b", "extra", "m", "é"])


@pytest.mark.parametrize("how", ["shorter", "zeros", "index", "gone", "list"])
def test_what_is_no_entry_is_an_error(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic, how: str
) -> None:
    follow(model, topic)
    tables = model.store.tables

    def work(txn: Any) -> None:
        if how == "list":
            txn.put(b"parts", bytes(8 * 8), db=tables.about)
            return
        for number, data in [(bytes(k), bytes(v)) for k, v in txn.cursor(tables.versions)]:
            if how == "gone":
                txn.delete(number, db=tables.versions)
            elif how == "index":  # behind the last row: where the first one is
                end = data.rindex(b'id2"two"') + len(b'id2"two"')
                txn.put(number, data[:end] + b"\xff" * 4 + data[end + 4 :], db=tables.versions)
            else:
                other = data[:-1] if how == "shorter" else bytes(len(data))
                txn.put(number, other, db=tables.versions)

    model.store.environment.write(work)
    model.store.environment.mapped.clear()
    with pytest.raises(StoreFailedError, match="elete the folder"):
        verdict(tmp_path, topic)


def test_a_topic_that_has_lost_its_beginning_cannot_tell(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    topic.expire(0, 1)
    with pytest.raises(ChangesExpiredError):
        verdict(tmp_path, topic)


def test_two_commands_at_once_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["read-model", "--verify", "--bootstrap", "127.0.0.1:9", "--folder"]
    made: list[Path] = []

    def verified(_folder: Path, _settings: Settings, fresh: Path, **_: object) -> ModelComparison:
        made.append(fresh)
        fresh.mkdir()
        if len(made) == 1:
            assert CliRunner().invoke(app, [*command, str(tmp_path / "model")]).exit_code == 0
        return ModelComparison(1, fresh.exists(), [])

    monkeypatch.setattr("streamydb.read_model.verify", verified)
    done = CliRunner().invoke(app, [*command, str(tmp_path / "model")])
    assert (done.exit_code, "1 keys at seq 1" in done.output, len(made)) == (0, True, 2)
    assert list(tmp_path.iterdir()) == []
    done = CliRunner().invoke(app, [*command, str(tmp_path / "none" / "model")])
    assert (done.exit_code, "No such file or directory" in done.output) == (1, True)
