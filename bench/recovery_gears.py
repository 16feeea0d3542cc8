"""How long clients get no verdict when a part of a pipeline with two gears dies.

Each turn begins while the real-time gear leads. Then something happens to it, to the other gear or
to both. `verdict_s` lasts until the first verdict on a transaction that was appended afterwards;
`pause_s` is the longest time between two verdicts in the seconds behind it, which also counts what
came of it late.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from bench.recovery_load import WAIT_S, RecoveryError, RecoveryLoad, started_again
from streamydb.pipeline.realtime.query import BATCH_SETTING
from streamydb.records.gears import MICRO_BATCH, REAL_TIME, GearStatus
from streamydb.testing.database import Database, wait_for

__all__ = ["GEAR_FIGURES", "GEAR_KINDS", "GEAR_TITLES", "gear_turns", "pipeline_options"]

Turns: TypeAlias = Callable[[Database, RecoveryLoad, int, float], Iterator[dict[str, float]]]
"""Yields the figures of each turn."""

GEAR_TITLES: Final = {
    "worker": "the worker of the real-time gear killed",
    "workers": "all Python workers and their daemon killed",
    "other-workers": "the workers of the other gear killed",
    "base": "the local files deleted",
    "batch-end": "Spark ends the batch of the real-time gear",
    "jvm": "the JVM killed, the pipeline started again",
    "pipeline": "all of the pipeline killed, started again",
}

_VERDICT: Final = ("verdict_s", "until the next verdict")
_PAUSE: Final = ("pause_s", "longest pause between two verdicts")
_COLD: Final = (
    ("runs_s", "until its query runs"),
    ("first_batch_s", "then its first verdict"),
    _VERDICT,
)

GEAR_FIGURES: Final = {
    **dict.fromkeys(("worker", "workers", "other-workers", "base"), (_VERDICT, _PAUSE)),
    "batch-end": (_PAUSE,),
    "jvm": (("ended_s", "until the pipeline has ended"), *_COLD),
    "pipeline": _COLD,
}

GEAR_KINDS: Final = tuple(GEAR_TITLES)
"""What can be measured with two gears."""

_BATCH_S: Final = 20
"""Seconds of Spark's batch of the real-time gear, where its end is measured; else it is a day."""

_BEHIND_S: Final = 4.0
_LOOK_S: Final = 0.01
_LEADS_S_MAX: Final = 240.0


def pipeline_options(kind: str) -> list[str]:
    """Return the options of a pipeline with two gears."""
    more = ["--conf", f"{BATCH_SETTING}={_BATCH_S}"] if kind == "batch-end" else []
    return ["--gear", "both", *more]


def gear_turns(kind: str) -> Turns:
    """Return the measurement of a kind."""
    if kind == "batch-end":
        return _batch_ends
    if kind in _HARMS:
        return partial(_harmed, _HARMS[kind])
    return partial(_cold, _KILLS[kind])


def _harmed(
    harm: Callable[[Database], object],
    database: Database,
    load: RecoveryLoad,
    turns: int,
    settle_s: float,
) -> Iterator[dict[str, float]]:
    for _ in range(turns):
        _await_lead(database, REAL_TIME)
        time.sleep(settle_s)
        harm(database)
        harmed_s = time.monotonic()
        verdict_s = load.first_after(harmed_s) - harmed_s
        ends_s = max(time.monotonic(), harmed_s + _BEHIND_S)
        time.sleep(max(0.0, ends_s - time.monotonic()))
        yield {"verdict_s": verdict_s, "pause_s": load.longest_pause(harmed_s, ends_s)}


def _batch_ends(
    database: Database, load: RecoveryLoad, turns: int, settle_s: float
) -> Iterator[dict[str, float]]:
    for _ in range(turns):
        _await_lead(database, REAL_TIME)
        since_s = time.monotonic() + settle_s
        _await_lead(database, MICRO_BATCH)
        time.sleep(_BEHIND_S)
        yield {"pause_s": load.longest_pause(since_s, time.monotonic())}


def _cold(
    kill: Callable[[Database], tuple[float, dict[str, float]]],
    database: Database,
    load: RecoveryLoad,
    turns: int,
    settle_s: float,
) -> Iterator[dict[str, float]]:
    for _ in range(turns):
        _await_lead(database, REAL_TIME)
        time.sleep(settle_s)
        killed_s, told = kill(database)
        yield {**told, **started_again(database, load, killed_s)}


def _await_lead(database: Database, gear: str) -> None:
    """Wait until a gear leads."""
    what = f"the lead of the {gear} gear"
    wait_for(lambda: _gear(database).gear == gear, what, _LEADS_S_MAX)


def _gear(database: Database) -> GearStatus:
    found = database.status().gear
    return GearStatus("", 0, "") if found is None else found


def _worker(database: Database) -> int:
    """Return the process of the real-time gear.

    Raises:
        RecoveryError: it does not lead.
    """
    worker = _gear(database).worker
    if worker is None:
        raise RecoveryError("the real-time gear does not lead any more")
    return worker


def _kill_worker(database: Database) -> None:
    os.kill(_worker(database), signal.SIGKILL)


def _kill_workers(database: Database) -> None:
    _require(database.kill_workers(daemons=True))


def _kill_other_workers(database: Database) -> None:
    _require(database.kill_workers(spared={_worker(database)}))


def _require(killed: int) -> None:
    if not killed:
        raise RecoveryError("there was no worker to kill")


def _kill_jvm(database: Database) -> tuple[float, dict[str, float]]:
    """Kill the JVM and wait for the end of its pipeline; return when, and how long that took."""
    javas = [process for process in database.processes() if process.name() == "java"]
    _require(len(javas))
    for java in javas:
        java.kill()
    killed_s = time.monotonic()
    database.wait_pipeline(WAIT_S)
    ended_s = time.monotonic() - killed_s
    database.kill_pipeline()
    return killed_s, {"ended_s": ended_s}


def _kill_all(database: Database) -> tuple[float, dict[str, float]]:
    """Kill everything; return when it was dead: until then the real-time gear still answers."""
    database.kill_pipeline()
    return time.monotonic(), {}


_HARMS: Final[dict[str, Callable[[Database], object]]] = {
    "worker": _kill_worker,
    "workers": _kill_workers,
    "other-workers": _kill_other_workers,
    "base": Database.delete_local_files,
}
_KILLS: Final = {"jvm": _kill_jvm, "pipeline": _kill_all}
