"""`make histories HISTORIES=4`: histories of 10,000 operations under kills, judged and counted.

One database serves all of them, several at a time: clients over REST, functions under the Python
client's `run`, and the Python client straight on Kafka. At the end `check` replays the whole log.
The totals go into bench/results/reliability.json and docs/reliability.md; if something fails, the
folder is kept, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from histories.campaign import files
from histories.records import read_history
from streamydb.testing.database import wait_for
from tests.campaign.faults import FAULTS, Fault
from tests.campaign.gears import real_time_leads, shifts
from tests.campaign.rounds import tell
from tests.campaign.world import World
from tests.support.serving import Process
from tools import reliability

WAYS: Final = ("rest", "run", "kafka")
"""Over REST, functions under the Python client's `run`, the Python client straight on Kafka."""

_WEIGHTS: Final = {
    "SIGKILL of Python workers": 3, "SIGKILL of a facade or a read model": 6,
    "SIGKILL of the broker": 3, "SIGKILL of a pipeline: driver, JVM, workers": 2,
    "SIGSTOP of the broker": 1, "SIGSTOP of a facade or a read model": 1,
    "SIGSTOP of a pipeline": 1, "SIGKILL of the real-time gear's worker": 3,
    "SIGSTOP of the real-time gear's worker": 1, "base deleted under the real-time gear": 1,
    "more load than the real-time gear takes": 3,
}  # fmt: skip
"""How often which fault is drawn: a pipeline takes the longest to come back."""

_KEYS: Final = {"rest": (12, 32), "run": (60, 300), "kafka": (12, 32)}
"""Registers and lists: functions under `run` that collide begin again, and get nowhere."""

_REST_S: Final = (4.0, 20.0)
_HISTORY_S: Final = 3600.0
_LEAD_S: Final = 180.0


@dataclass
class Counted:
    """What a run of histories did.

    Attributes:
        seed: of all choices.
        histories: how many through each way.
        operations: executed or of unknown outcome, through each way.
        faults: how often each kind was injected.
        longest_s: the longest time to a verdict after a fault.
        shifts: how often the real-time gear took the lead.
    """

    seed: int
    outcome: str = "passed"
    seconds: float = 0.0
    transactions: int = 0
    longest_s: float = 0.0
    shifts: int = 0
    histories: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def record(self) -> dict[str, Any]:
        """As bench/results/reliability.json has it."""
        return {
            "seed": self.seed, "outcome": self.outcome, "minutes": round(self.seconds / 60, 1),
            "transactions": self.transactions, "longest_s": round(self.longest_s, 1),
            "shifts": self.shifts,
            "histories": dict(self.histories), "operations": dict(self.operations),
            "faults": dict(sorted(self.faults.items())),
        }  # fmt: skip


class Recorded:
    """Clients of one history, in a process of its own that judges it in the end.

    Attributes:
        way: one of `WAYS`.
        folder: where the history lies.
    """

    def __init__(self, world: World, number: int, way: str, asked: argparse.Namespace) -> None:
        """Start them."""
        self.way = way
        self.folder = world.folder / f"history-{number}"
        command = [
            sys.executable, "-m", "streamydb.cli", "histories", "run", str(self.folder),
            "--operations", str(asked.operations), "--clients", str(asked.clients),
            "--seconds", str(_HISTORY_S), "--seed", str(number), "--prefix", f"h{number:03}/",
        ]  # fmt: skip
        registers, lists = _KEYS[way]
        command += ["--registers", str(registers), "--lists", str(lists)]
        command += [word for url in world.urls for word in ("--url", url)]
        if way == "run":
            command.append("--library")
        if way == "kafka":
            for model in range(len(world.urls)):
                place = f"{world.broker.bootstrap}/{world.name}"
                url = f"kafka://{place}?read_model={world.folder / f'read-model-{model}'}"
                command += ["--kafka", url]
        self.process = Process(f"history-{number}", world.folder, command, {})
        self.process.start()

    def ended(self) -> bool:
        """Whether it has been judged.

        Raises:
            AssertionError: it is not explained, or its clients failed.
        """
        code = self.process.exit_code
        said = "" if code is None else self.process.log_file.read_text()[-6000:]
        assert not code, f"{self.folder} ({self.way}): {said}"
        return code == 0

    def count(self, counted: Counted) -> None:
        """Add it to the totals."""
        operations = read_history(files(self.folder)).operations
        counted.histories[self.way] += 1
        counted.operations[self.way] += sum(op.outcome != "failed" for op in operations)
        lasted = (operations[-1].invoked_ns - operations[0].invoked_ns) / 1e9
        said = self.process.log_file.read_text().strip().replace("\n", "; ")
        tell(f"{self.folder.name} ({self.way}, {lasted:.0f} s): {said}")


def run(folder: Path, asked: argparse.Namespace, counted: Counted) -> None:
    """Record histories on one database and judge them, while its parts are killed.

    Raises:
        AssertionError, StreamyError: the database did not survive.
    """
    rng = random.Random(counted.seed)
    gears = asked.gears and asked.shards == 1
    world = World(
        folder,
        rng,
        shards=asked.shards,
        partitions=1 if gears else 2,
        grouping="planner",
        gears=gears,
    )
    begun = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(world.opened(standby=False, disk=False))
        if gears:  # clients send again, and such an id ends a gear that has not led yet
            lead = "the lead of the real-time gear"
            wait_for(lambda: real_time_leads(world) > 0, lead, _LEAD_S)
        under_way: list[Recorded] = []
        stack.callback(lambda: _end(under_way))
        for number in range(asked.histories):
            way = WAYS[(number + counted.seed) % len(WAYS)]
            under_way.append(Recorded(world, number, way, asked))
            most = asked.at_once if number < asked.histories - 1 else 1
            while len(under_way) >= most:
                _harm(world, rng, counted)
                for each in [each for each in under_way if each.ended()]:
                    each.count(counted)
                    under_way.remove(each)
        tell(f"all are judged after {time.monotonic() - begun:.0f} s; `check` replays the log")
        counted.transactions = world.prove()
        counted.shifts = shifts(world)
    counted.seconds = time.monotonic() - begun


def _end(under_way: list[Recorded]) -> None:
    for each in under_way:
        each.process.kill()


def _harm(world: World, rng: random.Random, counted: Counted) -> None:
    """One fault, and a new transaction after it."""
    possible = [fault for fault in _FAULTS if fault.possible(world)]
    (fault,) = rng.choices(possible, [_WEIGHTS[fault.name] for fault in possible])
    began = time.monotonic()
    counted.faults[fault.name] += fault.inject(world, rng)
    world.healthy(fault.name)
    waited = world.live()
    counted.longest_s = max(counted.longest_s, waited)
    tell(f"{fault.name}: {time.monotonic() - began - waited:.1f} s, verdict after {waited:.1f} s")
    rest_until = time.monotonic() + rng.uniform(*_REST_S)
    wait_for(lambda: time.monotonic() > rest_until, "a rest")


_FAULTS: Final[list[Fault]] = [fault for fault in FAULTS if fault.name in _WEIGHTS]


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=3, help="how many [3]")
    parser.add_argument("--operations", type=int, default=10_000, help="of each [10000]")
    parser.add_argument("--at-once", type=int, default=3, help="histories at a time [3]")
    parser.add_argument("--clients", type=int, default=64, help="of each history [64]")
    parser.add_argument("--shards", type=int, default=1, help="of the database [1]")
    parser.add_argument(
        "--gears",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a real-time gear, where there is one shard [yes]",
    )
    parser.add_argument("--seed", type=int, help="of all choices [by chance]")
    parser.add_argument("--folder", type=Path, help="where the database lies [a new one]")
    parser.add_argument("--no-record", action="store_true", help="leave the table as it is")
    return parser.parse_args()


def main() -> int:
    """Run histories; 0, or 3 if one is not explained or the database did not survive."""
    asked = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # everything is ended and unmounted
        signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="streamydb-histories-"))
    folder.mkdir(parents=True, exist_ok=True)
    counted, stamp = Counted(seed), reliability.stamp()
    tell(f"{asked.histories} histories, seed {seed}, in {folder}")
    try:
        run(folder, asked, counted)
    except Exception:  # noqa: BLE001 - whatever it is, the database did not survive it
        counted.outcome = "failed"
        traceback.print_exc()
        tell(f"FAILED with seed {seed}. Look into {folder}: history-*.log, pipeline.log, ...")
    else:
        shutil.rmtree(folder, ignore_errors=True)
        tell(f"passed: {counted.record()}")
    if not asked.no_record:
        kept = {**stamp, **counted.record()}
        reliability.update(lambda results: results.setdefault("histories", []).append(kept))
    return 0 if counted.outcome == "passed" else 3


if __name__ == "__main__":
    sys.exit(main())
