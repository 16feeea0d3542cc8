"""The lease of a checkpoint in an object store: one holder at a time, whoever dies or hangs."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from streamydb.errors import ConfigurationError
from streamydb.kafka.connection import StopRequestedError
from streamydb.pipeline.background import FeedbackKeeper
from streamydb.pipeline.checkpoint import StoreCheckpoint, opened
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.lease import EXPIRES_S, LOST_S, Objects, StoreLease, locked
from streamydb.settings import Settings
from tests.support.seeds import seeds

URL = "s3a://bank/checkpoint"


class MemoryObjects(Objects):
    """Objects of a store; ``careless``: it creates what is there."""

    def __init__(self, *, careless: bool = False) -> None:
        self.held: dict[str, bytes] = {}
        self.sent: list[str] = []
        self._careless = careless

    def read(self, name: str) -> bytes | None:
        return self.held.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.held[name] = data

    def create(self, name: str, data: bytes) -> bool:
        if name in self.held and not self._careless:
            return False
        self.held[name] = data
        return True

    def names(self, folder: str) -> list[str]:
        start = f"{folder}/" if folder else ""
        return sorted(
            {name.removeprefix(start).split("/")[0] for name in self.held if name.startswith(start)}
        )

    def delete(self, name: str) -> None:
        self.held.pop(name, None)

    def fetch(self, name: str, path: Path) -> bool:
        if name not in self.held:
            return False
        path.write_bytes(self.held[name])
        return True

    def send(self, name: str, path: Path) -> None:
        self.held[name] = path.read_bytes()
        self.sent.append(name)


class Time:
    """A clock, and something that happens while somebody waits."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now_s = 0.0
        self.meanwhile = meanwhile
        self.stops = False

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        self.meanwhile()
        return self.stops

    def lease(self, objects: Objects) -> StoreLease:
        return StoreLease(objects, URL, self.wait, lambda: self.now_s)


def test_a_live_holder_keeps_others_off_and_a_released_lease_is_free_at_once() -> None:
    objects, time = MemoryObjects(), Time()
    first, second = time.lease(objects), time.lease(objects)
    first.take()
    time.meanwhile = first.renew
    with pytest.raises(ConfigurationError, match=r"another pipeline runs .* renews the lease"):
        second.take()
    first.release()
    before_s = time.now_s
    second.take()
    assert time.now_s == before_s
    assert list(objects.held) == ["lease/2"]


def test_the_lease_of_a_dead_holder_expires_and_the_holder_learns_of_it() -> None:
    objects, time = MemoryObjects(), Time()
    first, second = time.lease(objects), time.lease(objects)
    first.take()
    second.take()
    assert EXPIRES_S <= time.now_s <= EXPIRES_S + 2
    assert "could not be renewed for 20 s" in str(first.lost)
    assert not first.renew()
    assert second.renew()
    assert second.lost is None
    assert LOST_S < EXPIRES_S, "a holder gives up before another one takes over"


def test_of_two_that_take_over_at_once_one_is_refused() -> None:
    objects = MemoryObjects()
    Time().lease(objects).take()
    rivals = [Time(), Time()]
    winner = rivals[1].lease(objects)
    rivals[0].meanwhile = lambda: winner.take() if rivals[0].now_s == EXPIRES_S else None
    with pytest.raises(ConfigurationError, match="another pipeline runs"):
        rivals[0].lease(objects).take()
    assert winner.renew()


def test_one_that_is_told_to_stop_does_not_wait() -> None:
    objects, time = MemoryObjects(), Time()
    time.lease(objects).take()
    time.stops = True
    with pytest.raises(StopRequestedError):
        time.lease(objects).take()


def test_a_store_without_conditional_writes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="creates an object twice"):
        Time().lease(MemoryObjects(careless=True)).take()


class Slow(MemoryObjects):
    """A store in which a renewal is on its way when its holder ends,
    and reaches it last if it can.
    """

    def __init__(self) -> None:
        super().__init__()
        self.renews, self.released = threading.Event(), threading.Event()

    def write(self, name: str, data: bytes) -> None:
        if threading.current_thread() is threading.main_thread():
            super().write(name, data)
            self.released.set()
            return
        self.renews.set()
        self.released.wait(0.5)
        super().write(name, data)


def test_a_renewal_under_way_does_not_take_the_release_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamydb.pipeline.lease._RENEW_S", 0.0)
    objects, time = Slow(), Time()
    with time.lease(objects):
        assert objects.renews.wait(60)
    for thread in threading.enumerate():
        if thread.name == "streamydb-lease":
            thread.join()
    time.lease(objects).take()
    assert time.now_s == 0, "the next holder did not wait"


class Holders:
    """Holders that renew, hang and learn that they have lost the lease, as chance has it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.time = Time(self.live)
        self.objects = MemoryObjects()
        self.renewed_s: dict[StoreLease, float] = {}

    def live(self) -> None:
        for lease, last_s in list(self.renewed_s.items()):
            if self.time.now_s - last_s > LOST_S:
                del self.renewed_s[lease]
            elif self.rng.random() < 0.3:
                if lease.renew():
                    self.renewed_s[lease] = self.time.now_s
                else:
                    del self.renewed_s[lease]

    def start(self) -> bool:
        lease = self.time.lease(self.objects)
        try:
            lease.take()
        except ConfigurationError:
            return False
        self.renewed_s[lease] = self.time.now_s
        return True

    def end(self, *, cleanly: bool) -> None:
        lease, _ = self.renewed_s.popitem()
        if cleanly:
            lease.release()


@pytest.mark.randomized
def test_whatever_happens_no_two_hold_the_lease() -> None:
    taken = refused = 0
    for seed in range(100):
        holders = Holders(seed)
        for _ in range(20):
            if holders.start():
                taken += 1
            else:
                refused += 1
            assert len(holders.renewed_s) == 1, seed
            fate = holders.rng.random()
            if fate < 0.5:
                holders.end(cleanly=fate < 0.25)
    assert taken > 500
    assert refused > 500


def test_a_folder_is_locked_for_one(tmp_path: Path) -> None:
    refused = pytest.raises(ConfigurationError, match="streamydb down")
    with locked(tmp_path), refused, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("gone", ["deleted", "moved", "made anew", "its disk does not answer"])
def test_a_pipeline_does_not_go_on_without_its_folder(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may begin there, and each would write into the files of the other."""
    folder = tmp_path / "checkpoint"
    config = PipelineConfig(Settings(bootstrap="127.0.0.1:9"), folder, None, tmp_path / "local")
    with opened(config, None, lambda _: False) as checkpoint:  # type: ignore[arg-type]
        (folder / "query").mkdir()
        assert checkpoint.lost is None
        if gone == "its disk does not answer":
            monkeypatch.setattr(Path, "stat", _stale)
            assert checkpoint.lost is None
            return
        folder.rename(tmp_path / "elsewhere")
        if gone != "moved":
            shutil.rmtree(tmp_path / "elsewhere")
        if gone == "made anew":
            (folder / "query").mkdir(parents=True)
            (folder / "lease").touch()
        assert "was deleted or moved away while the pipeline ran" in (checkpoint.lost or "")


def _stale(*_: object) -> None:
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_folder_without_locks_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    refused = pytest.raises(ConfigurationError, match=r"cannot be locked \(No locks available\)")
    with refused, locked(tmp_path):
        pass


def test_the_copy_of_a_checkpoint_has_what_a_start_needs_and_goes_back(tmp_path: Path) -> None:
    objects = MemoryObjects()
    lease = Time().lease(objects)
    lease.take()
    copy = tmp_path / "copy"
    checkpoint = StoreCheckpoint(objects, copy, lease)
    checkpoint.pull()
    assert not (copy / "query").exists()
    (copy / "streamydb.json").write_bytes(b"facts")
    (copy / "start").mkdir()
    for name in ("state.json", "values-00000.part"):
        (copy / "start" / name).write_bytes(b"state")
    checkpoint.push()
    checkpoint.push()
    assert objects.sent == ["start/values-00000.part", "streamydb.json", "start/state.json"]
    for batch in range(30):
        objects.held[f"query/offsets/{batch}"] = b"o%d" % batch
        objects.held[f"query/commits/{batch}"] = b"c%d" % batch
    shutil.rmtree(copy)
    again = StoreCheckpoint(objects, copy, lease)
    for log in ("offsets", "commits"):
        objects.held[f"query/{log}/30"] = b"new"
        del objects.held[f"query/{log}/0"]
        again.pull()
        kept = sorted(int(path.name) for path in (copy / "query" / log).iterdir())
        assert kept == [1, 28, 29, 30]
    assert (copy / "start" / "state.json").read_bytes() == b"state"
    del objects.held["start/state.json"]
    StoreCheckpoint(objects, copy, lease)
    assert not (copy / "start").exists(), "a state that is not there as a whole is none"


class Running(MemoryObjects):
    """A store in which a query runs: a batch ends whenever something is fetched of its logs."""

    def __init__(self, dice: random.Random, batches: int) -> None:
        super().__init__()
        self.dice, self.newest, self.away = dice, -1, False
        for _ in range(batches):
            self.end_batch()

    def end_batch(self) -> None:
        self.newest += 1
        for log in ("offsets", "commits"):
            self.held[f"query/{log}/{self.newest}"] = b"%d" % self.newest
            self.held.pop(f"query/{log}/{self.newest - 20}", None)

    def names(self, folder: str) -> list[str]:
        self._answer()
        return super().names(folder)

    def fetch(self, name: str, path: Path) -> bool:
        self._answer()
        if self.dice.random() < 0.2:
            self.end_batch()
        return super().fetch(name, path)

    def send(self, name: str, path: Path) -> None:
        self._answer()
        super().send(name, path)

    def _answer(self) -> None:
        if self.away:
            told = SimpleNamespace(toString=lambda: "SdkClientException: 503", _target_id="o1")
            raise Py4JJavaError("an error occurred", told)


def running(tmp_path: Path, seed: int = 0) -> tuple[Running, StoreCheckpoint]:
    objects = Running(random.Random(f"running {seed}"), 50)
    lease = Time().lease(objects)
    lease.take()
    return objects, StoreCheckpoint(objects, tmp_path / "copy", lease)


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_files_that_the_query_removes_meanwhile_are_looked_for_again(
    seed: int, tmp_path: Path
) -> None:
    objects, checkpoint = running(tmp_path, seed)
    for log in ("offsets", "commits"):
        before = objects.newest
        checkpoint.pull()
        kept = sorted(int(path.name) for path in (tmp_path / "copy" / "query" / log).iterdir())
        assert len(kept) == 4
        assert kept[0] >= before - 19
        assert kept[1:] == list(range(kept[1], kept[1] + 3))
        assert kept[0] == kept[3] - 19, "they are of one moment"


def test_a_store_that_does_not_answer_is_told_and_ends_no_keeper_of_feedback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    objects, checkpoint = running(tmp_path)
    (tmp_path / "copy" / "streamydb.json").write_bytes(b"facts")
    objects.away = True
    for step in (checkpoint.pull, checkpoint.push):
        with pytest.raises(ConfigurationError, match=r"checkpoint cannot be used: .*503"):
            step()
    keeper = FeedbackKeeper({}, "bank.feedback", tmp_path / "copy", checkpoint.pull)
    keeper._try(keeper._drop)
    assert "503" in caplog.text
    assert "it grows meanwhile" in caplog.text
