"""What a start makes sure of before the query: the checkpoint, and the topics that it has read."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamydb.backup.start import Beginning
from streamydb.errors import ConfigurationError
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.pipeline import background
from streamydb.pipeline.background import KEPT_MS, FeedbackKeeper
from streamydb.pipeline.preparation import resume
from tests.support.checkpoints import with_sums, written_to
from tests.support.memory_kafka import CONNECTION, MemoryKafka, Partition

NAMES = TopicNames("bank")
CONFIG = ShardConfig("bank", "i", 1, 1, 100)


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryKafka:
    """The first batch has begun; it reads from offset 5 on. The log was trimmed behind that."""
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create(NAMES.feedback)
    log = kafka.create(NAMES.transactions)[0]
    for number in range(9):
        kafka.append(NAMES.transactions, 0, b"%d" % number)
    log.trim(5)
    read = b'v1\n{}\n{"bank.transactions":{"0":8}}\n{"bank.feedback":{"0":0}}'
    written_to(folder / "query", with_sums("offsets/0", read))
    return kafka


def test_a_pipeline_that_began_with_a_state_may_die_in_its_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = begun(tmp_path, monkeypatch)
    start = Beginning(tmp_path / "start", 4, (5,))
    assert resume(CONNECTION, CONFIG, tmp_path, start) == {}, "what came before was trimmed"
    kafka.topics[NAMES.transactions][0].trim(6)
    with pytest.raises(ConfigurationError, match=r"the offsets \[5, 6\) .* were deleted"):
        resume(CONNECTION, CONFIG, tmp_path, start)


def test_one_that_began_with_the_log_needs_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path, monkeypatch)
    with pytest.raises(ConfigurationError, match=r"the offsets \[0, 5\) .* were deleted"):
        resume(CONNECTION, CONFIG, tmp_path, None)


def test_a_store_keeps_its_state_to_itself_and_is_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path, monkeypatch)
    query, start = tmp_path / "query", Beginning(tmp_path / "start", 4, (5,))
    written_to(query, {"commits/0": b'v2\n{"stateUniqueIds":{}}'})
    store = "s3a://bank/checkpoint"
    (end,) = resume(CONNECTION, CONFIG, tmp_path, start, store).values()
    assert end.end == 8, "the state is not looked for"
    written_to(query, {"offsets/1": b"torn"})
    with pytest.raises(ConfigurationError, match=r"s3a://.* \(offsets/1\); .* Begin a new one"):
        resume(CONNECTION, CONFIG, tmp_path, start, store)
    (query / "commits/0").unlink()
    written_to(query, with_sums("offsets/1", (query / "offsets/0").read_bytes()))
    with pytest.raises(ConfigurationError, match=r"\(commits/0\)"):
        resume(CONNECTION, CONFIG, tmp_path, start, store)


def ran(folder: Path, first: int, last: int) -> Path:
    """A checkpoint with some batches, each of which has read the feedback of the one before."""
    for batch in range(last + 1):
        read = f'{{"bank.transactions":{{"0":0}}}}\n{{"bank.feedback":{{"0":{batch}}}}}'
        files = with_sums(f"state/0/0/{batch + 1}.changelog", b"{}")
        if batch >= first:
            files |= with_sums(f"offsets/{batch}", f"v1\n{{}}\n{read}".encode())
            files |= with_sums(f"commits/{batch}", b"v1\n{}")
        written_to(folder / "query", files)
    return folder


def with_feedback(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryKafka, Partition]:
    """Kafka with an empty log, and the feedback's only partition."""
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create(NAMES.transactions)
    return kafka, kafka.create(NAMES.feedback)[0]


def test_a_copy_whose_feedback_was_deleted_since_is_refused_and_what_helps_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, part = with_feedback(monkeypatch)
    for _ in range(10):
        kafka.append(NAMES.feedback, 0, b"block")
        kafka.now_ms += KEPT_MS // 2
    clock = SimpleNamespace(time_ns=lambda: kafka.now_ms * 10**6)
    monkeypatch.setattr(background, "time", clock)
    FeedbackKeeper(CONNECTION, NAMES.feedback, ran(tmp_path / "own", 8, 9))._drop()
    assert part.low == 8, "that is older than a day"
    assert resume(CONNECTION, CONFIG, tmp_path / "own", None) == {}
    assert resume(CONNECTION, CONFIG, ran(tmp_path / "copy 8", 0, 8), None) == {}
    for batch in range(8):
        named = rf"up to {batch} only: what lies between was deleted. .* run `streamydb rebuild`"
        with pytest.raises(ConfigurationError, match=named):
            resume(CONNECTION, CONFIG, ran(tmp_path / f"copy {batch}", 0, batch), None)


def test_a_rebuilt_pipeline_may_die_in_its_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the one before it fed back, the oldest was deleted; the rest is there until then."""
    kafka, part = with_feedback(monkeypatch)
    for _ in range(9):
        kafka.append(NAMES.feedback, 0, b"of an earlier life")
    part.trim(5)
    read = b'v1\n{}\n{"bank.transactions":{"0":0}}\n{"bank.feedback":{"0":9}}'
    files = {**with_sums("offsets/0", read), "sources/1/0": b'\0v1\n{"bank.feedback":{"0":5}}'}
    written_to(tmp_path / "query", files)
    clock = SimpleNamespace(time_ns=lambda: (kafka.now_ms + 2 * KEPT_MS) * 10**6)
    monkeypatch.setattr(background, "time", clock)
    FeedbackKeeper(CONNECTION, NAMES.feedback, tmp_path)._drop()
    assert part.low == 5, "Spark reads it again"
    assert resume(CONNECTION, CONFIG, tmp_path, None) == {}
    part.trim(6)
    with pytest.raises(ConfigurationError, match="run `streamydb rebuild`"):
        resume(CONNECTION, CONFIG, tmp_path, None)
