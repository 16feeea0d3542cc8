"""A read model and forks: the child opens its own, and takes nothing of the parent's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.read_model import ReadModel
from streamydb.read_model.errors import StoreBusyError, StoreFailedError
from tests.support.memory_topic import MemoryTopic
from tests.support.read_model import follow


def in_a_child(work: Callable[[], None]) -> None:
    """Do something in a child of a fork; it fails here if it fails there."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is told
            os.write(tell, repr(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(tell)
    with os.fdopen(told) as failures:
        assert failures.read() == ""


@pytest.fixture
def folder(tmp_path: Path, topic: MemoryTopic) -> Path:
    with ReadModel.open(tmp_path, "bank", write=True) as model:
        follow(model, topic)
    return tmp_path


def test_a_child_opens_its_own(folder: Path) -> None:
    with ReadModel.open(folder, "bank") as model:
        seq = model.latest().seq

        def child() -> None:
            with pytest.raises(StoreFailedError, match="has been closed"):
                model.latest()
            with ReadModel.open(folder, "bank") as own, own.snapshot() as snapshot:
                assert snapshot.seq == seq

        in_a_child(child)
        with model.snapshot() as snapshot:
            assert snapshot.seq == seq


def test_a_snapshot_of_the_parent_stays_its_own(folder: Path) -> None:
    """LMDB knows readers by a table that both processes see."""
    with ReadModel.open(folder, "bank") as model, model.snapshot() as snapshot:
        before = model.store.environment._env.readers()

        def child() -> None:
            with pytest.raises(StoreBusyError, match="forked while a snapshot"):
                ReadModel.open(folder, "bank")

        in_a_child(child)
        assert model.store.environment._env.readers() == before
        assert snapshot.seq == model.latest().seq
