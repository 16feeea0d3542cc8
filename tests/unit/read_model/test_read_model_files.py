"""A read model's file: who may open it, how it grows, and copies of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.errors import ConfigurationError
from streamydb.kafka import TopicsError
from streamydb.local.own_process import give_back
from streamydb.read_model import (
    ReadModel,
    ReadModelError,
    Snapshot,
    SourceError,
    StoreBusyError,
    StoreFailedError,
    StoreMismatchError,
    StoreMissingError,
    WriterRunningError,
    copy_to,
    environment,
    service,
    store,
)
from streamydb.read_model.load import drafted
from streamydb.settings import Settings
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import follow, resolve, write
from tests.unit.backup.test_snapshots import make


def test_one_writer_many_readers(tmp_path: Path, model: ReadModel, topic: MemoryTopic) -> None:
    with pytest.raises(WriterRunningError, match="has a writer already"):
        ReadModel.open(tmp_path / "model", "bank", write=True)
    readers = [ReadModel.open(tmp_path / "model", "bank") for _ in range(3)]
    follow(model, topic)
    assert [reader.latest().seq for reader in readers] == [5, 5, 5]
    model.close()
    model.close()
    again = ReadModel.open(tmp_path / "model", "bank", write=True)
    with readers[0].snapshot(1) as snapshot:
        assert snapshot.get("a") is not None
    with again.snapshot() as snapshot:
        assert snapshot.seq == 5
    for opened in (*readers, again):
        opened.close()


def test_a_process_that_reads_may_begin_to_write(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "WAIT_S", 0.05)
    follow(model, topic).close()
    model.close()
    with ReadModel.open(tmp_path / "model", "bank") as reader:
        with reader.snapshot() as snapshot:
            with pytest.raises(StoreBusyError):
                ReadModel.open(tmp_path / "model", "bank", write=True)
            assert snapshot.get("b") is not None, "the snapshot was not harmed"
        with ReadModel.open(tmp_path / "model", "bank", write=True) as writer:
            write(topic, 0, 6, "c", "6")
            resolve(topic, 6)
            follow(writer, topic)
        with reader.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan()] == ["b", "c"]


@pytest.mark.fault(21, "a read model of another format", "refused")
def test_what_is_no_read_model_of_the_database_is_refused(
    tmp_path: Path, model: ReadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreMissingError, match="no read model in"):
        ReadModel.open(tmp_path / "nothing", "bank")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(StoreMismatchError, match="of the database 'bank', not of 'other'"):
        ReadModel.open(tmp_path / "model", "other")
    with pytest.raises(ConfigurationError, match="cannot be a database's name"):
        ReadModel.open(tmp_path / "model", "../x")
    with monkeypatch.context() as patch:
        patch.setattr(store, "FORMAT", 1)
        with pytest.raises(StoreMismatchError, match="has format 3, this program writes format 1"):
            ReadModel.open(tmp_path / "model", "bank")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "data.mdb").write_bytes(b"no LMDB file" * 1000)
    for writing in (False, True):
        with pytest.raises(StoreFailedError, match="cannot be opened"):
            ReadModel.open(tmp_path / "bad", "bank", write=writing)
    lmdb.open(str(tmp_path / "foreign"), max_dbs=4).close()
    with pytest.raises(StoreMissingError):
        ReadModel.open(tmp_path / "foreign", "bank")
    assert model.latest().seq == 0


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailedError, match="cannot be written"):
        ReadModel.open(tmp_path / "file" / "model", "bank", write=True)


def test_a_snapshot_outlives_its_read_model(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    snapshot, other = model.snapshot(), model.snapshot()
    model.close()
    with pytest.raises(StoreFailedError, match="has been closed"):
        model.snapshot()
    with ReadModel.open(tmp_path / "model", "bank") as again:
        assert again.store.environment is model.store.environment, "LMDB opens a file once"
    other.close()
    assert [entry.key for entry in snapshot.scan()] == ["b"]
    snapshot.close()
    snapshot.close()
    with pytest.raises(lmdb.Error):
        snapshot.get("b")
    with ReadModel.open(tmp_path / "model", "bank") as again:
        assert again.store.environment is not model.store.environment, "the file was closed"


def test_threads_read_while_the_model_is_closed(model: ReadModel, topic: MemoryTopic) -> None:
    """A kernel without Python's lock must not meet memory that another thread has unmapped."""
    follow(model, topic)
    snapshots = [model.snapshot() for _ in range(4)]
    begun, closed = threading.Barrier(5), threading.Event()

    def read(snapshot: Snapshot) -> int:
        begun.wait()
        found = 0
        while not closed.is_set() or found < 100:
            found += snapshot.get("b") is not None
        snapshot.close()
        return found

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, snapshot) for snapshot in snapshots]
        begun.wait()
        model.close()
        closed.set()
        assert all(each.result() >= 100 for each in reading)


def test_copies_are_whole_or_not_there(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(model, topic)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ReadModelError, match="is not empty"):
        copy_to(model, tmp_path / "full")

    def fail(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(ReadModelError, match="no space"):
            copy_to(model, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob("*.partial*"))
    copy_to(model, tmp_path / "copy")
    with ReadModel.open(tmp_path / "copy", "bank") as copy, copy.snapshot() as snapshot:
        assert snapshot.seq == 5


def test_the_map_grows_when_it_is_full(tmp_path: Path) -> None:
    topic = MemoryTopic(1)
    for seq in range(1, 401):
        write(topic, 0, seq, f"k{seq}", f'"{"x" * 10_000}"')
    resolve(topic, 400)
    with ReadModel.open(tmp_path / "small", "bank", write=True, map_bytes=1 << 20) as small:
        follow(small, topic)
        with small.snapshot() as snapshot:
            assert len(snapshot.scan()) == 400
            assert snapshot.get("k400") is not None
        assert (tmp_path / "small" / "data.mdb").stat().st_size > 4_000_000


def test_open_snapshots_hold_back_the_growth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "WAIT_S", 0.05)
    topic = MemoryTopic(1)
    with ReadModel.open(tmp_path / "small", "bank", write=True, map_bytes=1 << 20) as small:
        write(topic, 0, 1, "a", "1")
        resolve(topic, 1)
        follower = follow(small, topic)
        write(topic, 0, 2, "big", f'"{"x" * 200_000}"')
        for seq in range(3, 20):
            write(topic, 0, seq, "big", f'"{"x" * 200_000}"')
        resolve(topic, 20)
        with small.snapshot() as snapshot:
            with pytest.raises(StoreBusyError, match="close them sooner"):
                follower.step(0)
            assert snapshot.get("a") is not None, "the snapshot was not harmed"
        while small.latest().seq < 20:
            follower.step(0)


READER = """
import sys
from pathlib import Path
from streamydb.read_model import ReadModel
with ReadModel.open(Path(sys.argv[1]), "bank", map_bytes=1 << 20) as model:
    for line in sys.stdin:
        with model.snapshot() as snapshot:
            print(snapshot.seq, len(snapshot.scan()), snapshot.digest(), flush=True)
"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterable[Callable[[], list[str]]]:
    """Asks a process that reads with a small map what it sees."""
    process = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path / "model")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ask() -> list[str]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline().split()

    yield ask
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_readers_in_other_processes_follow_a_store_that_outgrows_their_map(
    model: ReadModel, reader: Callable[[], list[str]]
) -> None:
    topic = MemoryTopic(1)
    follower = follow(model, topic)
    assert reader()[:2] == ["0", "0"]
    for seq in range(1, 301):
        write(topic, 0, seq, f"k{seq}", f'"{"x" * 10_000}"')
        if seq % 100 == 0:
            resolve(topic, seq)
            follower.step(0)
            with model.snapshot() as snapshot:
                assert reader() == [str(seq), str(seq), snapshot.digest()]


def test_the_process_says_what_is_wrong(tmp_path: Path) -> None:
    command = ["read-model", "--home", str(tmp_path), "--folder", str(tmp_path / "new")]
    named = CliRunner().invoke(app, [*command, "--database", "Bad!"])
    assert (named.exit_code, "cannot be a database's name" in named.output) == (2, True)
    copying = CliRunner().invoke(app, [*command, "--copy-from", str(tmp_path / "none")])
    assert (copying.exit_code, "no read model in" in copying.output) == (1, True)


_READS = """
import sys
from pathlib import Path
from streamydb.read_model import ReadModel
ReadModel.open(Path(sys.argv[1]), "bank").close()
print("opened")
"""


def read_only(folder: Path) -> str:
    """Open a read model where it is mounted read-only, in another process; what that says."""
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
    own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    done = subprocess.run(
        [*own, str(folder), sys.executable, _READS], capture_output=True, text=True, check=False
    )
    if "opened" not in done.stdout and "streamydb" not in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    return done.stdout + done.stderr


def test_on_a_read_only_file_system_nothing_is_read_that_somebody_writes(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic).close()
    assert "is mounted read-only, and its follower writes it" in read_only(tmp_path / "model")
    model.close()
    assert read_only(tmp_path / "model") == "opened\n"


class Begun(Exception):  # noqa: N818 - it stands for all that follows
    """A read model is about to be made."""


def begin() -> None:
    raise Begun


class Answers:
    """A changes topic of which Kafka tells only an error."""

    def __init__(self, error: Exception) -> None:
        self.error, self.closed = error, False

    def describe(self) -> None:
        raise self.error

    def close(self) -> None:
        self.closed = True


def test_a_database_that_does_not_exist_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = TopicsError("Kafka does not answer")
    away.__cause__ = KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE))
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    monkeypatch.setattr(service, "listens", lambda _: True)
    monkeypatch.setattr(service, "warm_up", begin)
    for error, raised in ((SourceError("no topic"), SourceError), (away, Begun)):
        source = Answers(error)
        monkeypatch.setattr(service, "KafkaSource", lambda *_, source=source: source)
        with pytest.raises(raised):
            service.run(settings, tmp_path / "model")
        assert source.closed
        assert not (tmp_path / "model").exists()


def test_a_new_read_model_begins_with_what_is_named_in_an_empty_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    monkeypatch.setattr(service, "load", lambda _, folder, __: loaded.append(folder))
    monkeypatch.setattr(service, "warm_up", begin)
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    missing, empty, used = (tmp_path / name for name in ("missing", "empty", "used"))
    empty.mkdir()
    used.mkdir()
    (used / "data.mdb").touch()
    for folder in (missing, empty, used):
        with pytest.raises(Begun):
            service.run(settings, folder, from_snapshot="snapshot")
    assert loaded == [missing, empty]


def test_what_was_read_from_an_earlier_database_of_that_name_is_no_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    make(tmp_path / "snapshot", [], 1)
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    monkeypatch.setattr(service, "listens", lambda _: True)
    monkeypatch.setattr(service, "warm_up", begin)
    folder, anew = tmp_path / "new", MemoryTopic(2, "made anew")
    for source, raised in ((anew, StoreMismatchError), (topic, Begun)):
        monkeypatch.setattr(service, "KafkaSource", lambda *_, now=source: MemorySource(now))
        with pytest.raises(raised):
            service.run(settings, folder, copy_from=tmp_path / "model")
        assert folder.exists() == (raised is Begun)
    monkeypatch.setattr(service, "KafkaSource", lambda *_: MemorySource(anew))
    with pytest.raises(StoreMismatchError, match="now the database has others, with id made anew"):
        service.run(settings, tmp_path / "loaded", from_snapshot=str(tmp_path / "snapshot"))
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("retention", [-1.0, float("nan")])
def test_a_retention_that_is_none_is_refused_before_anything_begins(
    tmp_path: Path, retention: float
) -> None:
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="must be 0 or more, not"):
        service.run(settings, tmp_path / "model", retention_s=retention)
    assert not (tmp_path / "model").exists()


def test_what_a_killed_copy_has_left_goes_with_the_next(tmp_path: Path) -> None:
    """It is as large as the read model, and nobody else removes it."""
    left = tmp_path / "new" / "model.partial-123"
    left.mkdir(parents=True)
    (left / "data.mdb").write_bytes(b"values")
    with drafted(tmp_path / "new" / "model") as draft:
        (draft / "data.mdb").write_bytes(b"whole")
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "model"]
    others = left.parent.stat().st_mode
    assert (tmp_path / "new" / "model").stat().st_mode == others, "as any folder that is made"


def resident_kb(file: Path) -> int:
    """How much of a file this process has in its memory."""
    held, mine = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            mine = line.endswith(str(file))
        elif mine and line.startswith("Rss:"):
            held += int(line.split()[1])
    return held


def test_an_idle_process_leaves_the_files_pages_to_the_system(
    tmp_path: Path, model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic)
    file = tmp_path / "model" / "data.mdb"
    with model.snapshot() as open_snapshot:
        before = open_snapshot.get("a")
        assert resident_kb(file) > 0
        give_back()
        assert resident_kb(file) == 0
        assert open_snapshot.get("a") == before  # which was open all the time
    with model.snapshot() as snapshot:
        assert snapshot.get("a") == before
    assert resident_kb(file) > 0
