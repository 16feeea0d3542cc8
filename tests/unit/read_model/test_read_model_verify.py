"""A damaged read model is found, and the keys that differ are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.read_model import (
    ChangesExpiredError,
    Comparison,
    ReadModel,
    StoreFailedError,
    verify,
)
from streamydb.read_model.encoding import pack_version, stored, version_key
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import SETTINGS, follow, resolve, write


def verdict(folder: Path, topic: MemoryTopic) -> Comparison:
    return verify(folder / "model", SETTINGS, folder / "scratch", source=MemorySource(topic))


def damage(model: ReadModel, key: bytes, seq: int, data: bytes | None) -> None:
    """Change a version behind the store's back; None: remove it."""
    place, table = version_key(stored(key), seq), model.store.tables.versions
    assert model.store.environment.write(
        lambda txn: txn.delete(place, db=table) if data is None else txn.put(place, data, db=table)
    )


def test_a_sound_read_model_is_what_the_topic_says(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    assert verdict(tmp_path, topic) == Comparison(5, 1, [])


def test_one_that_is_behind_is_compared_where_it_is(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    write(topic, 0, 6, "c", "6")
    resolve(topic, 6)
    assert verdict(tmp_path, topic) == Comparison(5, 1, [])


def test_an_empty_one_is_sound(tmp_path: Path, model: ReadModel, topic: MemoryTopic) -> None:
    assert model.latest().seq == 0
    assert verdict(tmp_path, topic) == Comparison(0, 0, [])


def test_every_key_that_differs_is_named(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    for seq, key in ((6, "é"), (7, "z"), (8, "m"), (9, "same")):
        write(topic, 0, seq, key, "1")
    resolve(topic, 9)
    follow(model, topic)
    damage(model, b"b", 4, pack_version(40, b"id4", b"[5]"))
    damage(model, "é".encode(), 6, None)
    damage(model, b"extra", 3, pack_version(30, b"id3", b"1"))
    damage(model, b"m", 8, pack_version(81, b"id8", b"1"))
    assert verdict(tmp_path, topic) == Comparison(9, 5, ["b", "extra", "m", "é"])


def test_what_is_no_entry_is_an_error(tmp_path: Path, model: ReadModel, topic: MemoryTopic) -> None:
    follow(model, topic)
    damage(model, b"b", 4, b"?")
    with pytest.raises(StoreFailedError, match="Delete the folder"):
        verdict(tmp_path, topic)


def test_a_topic_that_has_lost_its_beginning_cannot_tell(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    topic.expire(0, 1)
    with pytest.raises(ChangesExpiredError):
        verdict(tmp_path, topic)
