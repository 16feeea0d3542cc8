"""What all tests share: one broker for the whole run, a fresh database name per test."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from streamydb.local.broker import EmbeddedBroker, start_detached, stop_detached
from streamydb.sql.pool import Spare
from tests.support import query_forks, stalest, terse, tracing
from tests.support.compiled import compile_share
from tests.support.recording import OPTION, Recorder
from tests.support.secured import SECURED
from tests.support.shared import OnShared
from tools.long_tests import LONG_FOLDERS, MARKS

RUN_FOLDER = "STREAMYDB_TEST_RUN_FOLDER"
"""Names the folder of this test run; pytest-xdist's workers inherit it from the controller."""

_MARKED_FOLDERS = {
    "spark": "spark", "kafka": "kafka", "faults": "spark", **{name: name for name in LONG_FOLDERS}
}  # fmt: skip
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("drawn", print_blob=True, deadline=None)
settings.load_profile("fixed")  # as the simulator's seeds are in `make test`; test-random: new ones

_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
"""Compile in a hurry, and do not collect garbage four times while a start loads its classes."""

_COMPILING = "test_read_model_history.py"
"""Its first test compiles the read model's kernels, which others then find in the cache."""

_WARMING_UP = 40
"""So many seeds of the simulator come first: they need no jars, which may still be coming."""

_SPARK_SHARE, _LONG_SHARE = 0.67, 0.92
"""Among which first part of the short tests those lie that start Spark, or that take seconds.

The latter ask Kafka, or are seeds of the simulator. Those that start Spark or ask Kafka wait for
much of their time: evenly among the others, they leave the cores busy. The last part has none, so
that no core waits at the end for a test that takes seconds, or minutes if it starts Spark.
"""

_KEPT_EVERY = 100
"""So many tests leave little enough for the collector to walk through."""
_ended = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what this run may be asked to do in addition."""
    parser.addoption(
        OPTION, action="store_true", help="write the faults that were injected, and what came of "
        "them, into bench/results/reliability.json and docs/reliability.md",
    )  # fmt: skip
    parser.addoption(
        tracing.OPTION, action="store_true",
        help="write which modules the randomized tests execute into docs/proof.md",
    )  # fmt: skip
    parser.addoption(
        stalest.RECORD, action="store_true",
        help="write when the tests that `make test` leaves out have passed into "
        "bench/results/long.json",
    )  # fmt: skip
    parser.addoption(
        stalest.OPTION, type=float, metavar="MINUTES",
        help="of the chosen tests, run those that passed longest ago, for so long",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder that the workers of a run share; have Java compile for a short life."""
    atexit.register(_hush)
    Spare.ahead = False  # most tests use one process for a query
    query_forks.install()
    os.environ.setdefault("JDK_JAVA_OPTIONS", _JAVA_OPTIONS)
    os.environ.setdefault("STREAMYDB_CLASS_DATA", "false")
    if _is_worker(config):
        gc.disable()  # until all tests are collected: it would walk through them again and again
    else:
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="streamydb-tests-")
        signal.signal(signal.SIGTERM, _interrupted)  # so that the shared broker is stopped, too
        if config.getoption(OPTION):
            config.pluginmanager.register(Recorder(), "streamydb-faults")
        if config.getoption(stalest.RECORD):
            config.pluginmanager.register(stalest.LongRecorder(), "streamydb-long")
    minutes = config.getoption(stalest.OPTION)
    if minutes is not None:
        config.pluginmanager.register(stalest.Stalest(minutes), "streamydb-stalest")
    if config.getoption(tracing.OPTION):
        config.pluginmanager.register(tracing.ModuleRecorder(config), "streamydb-modules")


def _hush() -> None:
    """Drop the last words of libraries: DuckDB's binding lists all that Python leaves behind."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the shared broker, if a test started it, and remove the folder."""
    folder = os.environ.get(RUN_FOLDER)
    if _is_worker(config) or folder is None:
        return
    for home in (Path(folder) / "home", Path(folder) / SECURED / "home"):
        stop_detached(home)
    shutil.rmtree(folder, ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders of which this run wants no test, with all that they would import."""
    kind = collection_path.name
    if collection_path.parent != Path(__file__).parent or kind not in LONG_FOLDERS:
        return None
    return f"not {kind}" in config.getoption("markexpr").split(" and ") or None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have a worker send less, unless times or outcomes of all phases are asked for."""
    config = session.config
    recorded = any(map(config.getoption, [OPTION, stalest.RECORD, tracing.OPTION]))
    if config.option.durations is None and not recorded:
        terse.install(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Compile a share of the test files where workers begin to collect all of them at once."""
    config = session.config
    if _is_worker(config) and config.args == config.getini("testpaths"):
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        compile_share(config, Path(__file__).parent, number, workers)


def pytest_collection_finish() -> None:
    """Keep Python's collector away from ten thousand tests: the simulator runs half as long.

    What is garbage among them stays: to walk through all once takes half a second of each worker.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Keep the collector away from what tests leave, too: of all, it is a million objects.

    By itself, without a function of ours: `--record-modules` would take that for the test's.
    """
    if next(_ended) % _KEPT_EVERY == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by the folder they lie in; order those that are chosen, by marks or so."""
    for item in items:
        folder = _folder(item)
        if folder in _MARKED_FOLDERS:
            item.add_marker(_MARKED_FOLDERS[folder])
        marks = [*item.iter_markers()]
        item.user_properties += [("fault", mark.args[0]) for mark in marks if mark.name == "fault"]
        if any(mark.name in MARKS for mark in marks):
            item.user_properties.append(("long", True))
    yield
    items[:] = _ordered(items)


def _ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """What waits lies evenly among what computes."""
    parts: dict[str, list[pytest.Item]] = {"spark": [], "kafka": [], "simulation": [], "": []}
    for item in items:
        folder = _folder(item)
        folder = _MARKED_FOLDERS.get(folder, folder)
        parts[folder if folder in parts else ""].append(item)
    seeds = parts["simulation"]
    first = [item for item in parts[""] if item.path.name == _COMPILING][:1]
    others = [item for item in parts[""] if item not in first]
    computing = _spread(seeds[_WARMING_UP:], others, _LONG_SHARE)
    between = _spread(parts["kafka"], computing, _LONG_SHARE)
    return [*first, *seeds[:_WARMING_UP], *_spread(parts["spark"], between, _SPARK_SHARE)]


def _spread(some: list[pytest.Item], others: list[pytest.Item], share: float) -> list[pytest.Item]:
    """Some evenly among the first ``share`` of others, whose rest follows."""
    mixed, taken = [], 0
    for number, item in enumerate(some, 1):
        end = int(len(others) * share * number / len(some))
        mixed += [item, *others[taken:end]]
        taken = end
    return mixed + others[taken:]


@pytest.fixture
def injected(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Count faults for the table: `injected(times)`, `injected(times, number of the case)`."""

    def count(times: int, number: int | None = None) -> None:
        name = "any" if number is None else str(number)
        request.node.user_properties.append(("injected", (name, times)))

    return count


@pytest.fixture(scope="session")
def run_folder() -> Path:
    """The folder of this run, for what all workers share."""
    return Path(os.environ[RUN_FOLDER])


@pytest.fixture(scope="session")
def bootstrap(run_folder: Path) -> str:
    """The address of the broker that all workers of this run share; tests must not stop it."""
    return start_detached(run_folder / "home", heap_mb=512).bootstrap


@pytest.fixture
def database_on_shared(bootstrap: str, run_folder: Path, tmp_path: Path) -> Callable[..., OnShared]:
    """Make a database on that broker: `database_on_shared(shards=..., options=...)`."""
    assert bootstrap
    return partial(OnShared, tmp_path, run_folder / "home")


@pytest.fixture
def private_broker(tmp_path: Path) -> Iterator[Callable[..., EmbeddedBroker]]:
    """Make brokers of the test's own, to be killed at will: `private_broker(port=..., ...)`.

    They are not started yet, share the home `tmp_path / "home"`, and end with the test.
    """
    made: list[EmbeddedBroker] = []

    def make(home: Path | None = None, **options: object) -> EmbeddedBroker:
        options.setdefault("heap_mb", 512)
        made.append(EmbeddedBroker(home or tmp_path / "home", **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture
def database() -> str:
    """A database name that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _folder(item: pytest.Item) -> str:
    """The kind of a test; those of the layers have the same kinds, in a folder of their own."""
    return _folder_of(item.path)


@cache
def _folder_of(path: Path) -> str:
    """Of a file: a path is taken apart once, not for each of its tests."""
    kind, *deeper = path.relative_to(Path(__file__).parent).parts
    return deeper[0] if kind == "layers" else kind
