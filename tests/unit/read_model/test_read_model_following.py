"""Following a topic: positions, expiry, errors, and topics that are not the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.errors import ConfigurationError
from streamydb.read_model import (
    ChangesExpiredError,
    Follower,
    ReadModel,
    SourceError,
    StoreMismatchError,
    copy_to,
    store,
)
from streamydb.settings import Settings
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import SETTINGS, follow, resolve, write


def test_what_an_error_interrupted_is_read_again(
    model: ReadModel, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(model, SETTINGS, source=MemorySource(topic))
    with monkeypatch.context() as patch:
        patch.setattr(store, "forget_times", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            follower.step(0)
    assert model.latest().seq == 0
    assert follower.step(0) == 9
    assert model.latest().seq == 5


def test_what_is_written_and_what_resolves_it_are_one_commit(model: ReadModel) -> None:
    topic = MemoryTopic(2)
    follower = Follower(model, SETTINGS, source=MemorySource(topic, lambda *_: 1))
    follower.step(0)
    before = model.store.progress().commits
    for seq in range(1, 6):
        write(topic, seq % 2, seq, "a", str(seq))
        resolve(topic, seq)
        assert follower.step(0) == 3, "a change, and a resolved record in each partition"
        assert model.latest().seq == seq
    assert model.store.progress().commits == before + 5


def test_what_nothing_resolves_is_committed_all_the_same(model: ReadModel) -> None:
    topic = MemoryTopic(2)
    follower = Follower(model, SETTINGS, source=MemorySource(topic))
    write(topic, 0, 1, "a", "1")
    assert follower.step(0) == 1
    assert model.store.progress().parts[0].position == 1
    assert model.latest().seq == 0


def test_a_position_is_kept_over_control_records_and_none_of_them_is_missed(
    model: ReadModel, topic: MemoryTopic
) -> None:
    topic.skip(0, 3)
    follow(model, topic).close()
    high = topic.spans[0].high
    assert model.store.progress().parts[0].position == high
    topic.expire(0, high)
    write(topic, 0, 6, "c", "6")
    resolve(topic, 6)
    follow(model, topic)
    with model.snapshot(6) as snapshot:
        assert [entry.key for entry in snapshot.scan()] == ["b", "c"]


def test_an_expired_start_is_refused(model: ReadModel, topic: MemoryTopic) -> None:
    topic.expire(1, 1)
    with pytest.raises(ChangesExpiredError, match=r"partition 1.*before 1 have expired.*copy"):
        follow(model, topic)
    assert model.store.progress().parts == {}, "nothing was adopted"


def test_a_partition_that_expired_as_a_whole_is_refused(
    model: ReadModel, topic: MemoryTopic
) -> None:
    topic.expire(0, topic.spans[0].high)
    with pytest.raises(ChangesExpiredError):
        follow(model, topic)


def test_a_slow_reader_is_told_to_begin_with_a_copy(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    slow = ReadModel.open(tmp_path / "slow", "bank", write=True)
    follower = Follower(slow, SETTINGS, source=MemorySource(topic, lambda *_: 1))
    follower.step(0)
    follow(model, topic).close()
    topic.expire(0, 3)
    assert follower.step(0) == 0, "the source says so; the next step looks at the topic"
    for _ in range(2):
        with pytest.raises(ChangesExpiredError, match="--copy-from"):
            follower.step(0)
    slow.close()
    write(topic, 0, 6, "a", "6")
    resolve(topic, 6)
    copy_to(model, tmp_path / "copy")
    with ReadModel.open(tmp_path / "copy", "bank", write=True) as copy:
        assert copy.latest().seq == 5
        follow(copy, topic)
        follow(model, topic)
        for seq in range(7):
            with copy.snapshot(seq) as one, model.snapshot(seq) as other:
                assert one.digest() == other.digest()


def test_a_topic_that_is_not_the_one_followed_is_refused(
    model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    with pytest.raises(StoreMismatchError, match=r"id memory.*id is again"):
        follow(model, MemoryTopic(2, "again"))
    with pytest.raises(StoreMismatchError, match="it has 3"):
        follow(model, MemoryTopic(3))
    with pytest.raises(SourceError, match="are lost"):
        follow(model, MemoryTopic(2))
    topic.compacted = True
    with pytest.raises(SourceError, match="compacted"):
        follow(model, topic)


def test_a_follower_needs_its_own_database_and_a_writer(tmp_path: Path, model: ReadModel) -> None:
    with pytest.raises(ConfigurationError, match="'other'"):
        Follower(model, Settings(database="other"), source=MemorySource(MemoryTopic(1)))
    with pytest.raises(ValueError, match="retention_s must be 0 or more"):
        Follower(model, SETTINGS, retention_s=-1, source=MemorySource(MemoryTopic(1)))
    reader = ReadModel.open(tmp_path / "model", "bank")
    with pytest.raises(ConfigurationError, match="write=True"):
        Follower(reader, SETTINGS, source=MemorySource(MemoryTopic(1)))
    reader.close()
