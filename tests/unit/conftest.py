"""What the tests of the client, those of the read model and those of full disks share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamydb.facade import FacadeSettings
from streamydb.read_model import ReadModel
from streamydb.testing.clients import Awaited, MemoryHost
from tests.support.memory_topic import MemoryTopic
from tests.support.read_model import example


@pytest.fixture
def limits() -> FacadeSettings:
    """The settings of `host`; a module may have its own."""
    return FacadeSettings()


@pytest.fixture
def host(limits: FacadeSettings) -> Iterator[MemoryHost]:
    """A database in memory, and what serves it."""
    with MemoryHost(limits) as running:
        yield running


@pytest.fixture(params=["http blocking", "http awaiting", "direct blocking", "direct awaiting"])
def connect(host: MemoryHost, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Make clients of `host`, one transport and one driver after the other."""
    kind, driver = request.param.split()

    def make(**options: Any) -> Any:
        if driver == "blocking":
            return host.connect(kind, **options)
        return Awaited(host.portal, host.connect_async(kind, **options))

    return make


@pytest.fixture
def client(connect: Callable[..., Any]) -> Any:
    """One of them."""
    return connect()


@pytest.fixture
def topic() -> MemoryTopic:
    """A small topic of changes."""
    return example()


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ReadModel]:
    """An empty read model that can be written."""
    with ReadModel.open(tmp_path / "model", "bank", write=True) as opened:
        yield opened


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """How many bytes are free on the disks of folders; there are no other folders."""
    found: dict[Path, int] = {}

    def usage(folder: Path) -> _Usage:
        if folder not in found:
            raise FileNotFoundError(folder)
        return _Usage(10**12, 10**12 - found[folder], found[folder])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return found
