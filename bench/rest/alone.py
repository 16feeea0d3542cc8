"""Processor time of a read through HTTP, without Kafka and Spark: `python -m bench.rest.alone`.

A facade with a read model of 100,000 keys and a log in memory, beside a constant and PostgreSQL
behind the same server. Processor time depends less than rates do on what else the machine does; the
least of some turns counts. Strong reads lack what asking Kafka for the ends of the log costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import psutil

from bench.rest.cases import CASES, CONSTANT, FACADE, KEY_PREFIX
from bench.rest.load import Figures, Job
from bench.rest.servers import Server, peers, run_load, wait_for
from streamydb.cli.phases import Phases
from streamydb.local.broker import free_port
from streamydb.local.launcher import LocalProcess

KEYS: Final = 100_000
VALUE_BYTES: Final = 100
CASES_READ: Final = "get,read,scan,strong"
_WARM_UP_S: Final = 0.5
_START_S: Final = 1.2
_SERVE: Final = "serve"


def make_model(folder: Path) -> None:
    """Make a read model of a snapshot with all keys."""
    from streamydb.read_model import ReadModel, ResolvedPoint
    from streamydb.read_model.progress import PartitionProgress, TopicProgress
    from streamydb.read_model.rows import pack_row
    from streamydb.records.generation import FIRST

    value, now_ms = b'"%s"' % (b"v" * VALUE_BYTES), time.time_ns() // 1_000_000
    keys = sorted(f"{KEY_PREFIX}{n}".encode() for n in range(KEYS))
    rows = [pack_row(key, n, now_ms, b"t%d" % n, value) for n, key in enumerate(keys, 1)]
    reached = TopicProgress(
        "none", {0: PartitionProgress(KEYS, ResolvedPoint(KEYS, now_ms, {0: KEYS}))}
    )
    with ReadModel.open(folder, "bank", write=True) as model:
        model.store.belong_to(FIRST)  # as a follower does before it shows anything
        model.store.preload(rows)
        model.store.begin_at(reached, KEYS, now_ms)


def serve(port: int, folder: Path) -> None:
    """Serve a read model until SIGTERM, with a log that is empty."""
    from streamydb.facade import FacadeSettings
    from streamydb.facade.server import serve as serve_facade
    from streamydb.read_model import ReadModel
    from streamydb.testing.memory import MemoryDatabase

    log = MemoryDatabase()
    with ReadModel.open(folder, "bank") as model:
        settings = FacadeSettings(host="127.0.0.1", port=port)
        serve_facade(settings, model, log.log, log.changes)


@contextmanager
def servers(home: Path) -> Iterator[list[Server]]:
    """Run the facade, the constant, and PostgreSQL if there is one."""
    make_model(home / "model")
    port = free_port()
    command = [sys.executable, "-m", "bench.rest.alone", _SERVE, str(port), str(home / "model")]
    with ExitStack() as stack:
        process = stack.enter_context(LocalProcess("the facade", command, home / "log"))
        wait_for(process, port)
        others = stack.enter_context(peers(KEYS, VALUE_BYTES, Phases()))
        yield [Server(FACADE, port, psutil.Process(process.pid)), *others]


def cost_us(server: Server, case: str, clients: int, seconds: float, seed: int) -> float:
    """Microseconds of the server's processor time for one answer."""
    job = Job(
        case=case, port=server.port, clients=clients, begin_s=time.monotonic() + _START_S,
        warm_up_s=_WARM_UP_S, seconds=seconds, keys=KEYS, value_bytes=VALUE_BYTES, seed=seed,
    )  # fmt: skip
    before = server.cpu_s()
    (answer,) = run_load([msgspec.json.encode(job)])
    answers = sum(msgspec.json.decode(answer, type=Figures).statuses.values())
    return 1e6 * (server.cpu_s() - before) / answers


def measure(running: Sequence[Server], case: str, given: argparse.Namespace) -> str:
    """One case on all servers by turns, as a line for people."""
    compared = [s for s in running if s.name == FACADE or s.name in CASES[case].peers]
    costs: dict[str, list[float]] = {server.name: [] for server in compared}
    for turn in range(given.turns):
        for server in compared:
            costs[server.name].append(cost_us(server, case, given.clients, given.seconds, turn))
    least = {name: min(found) for name, found in costs.items()}
    shown = [
        f"{name} {us:.0f} us" + (f" ({us / least[FACADE]:.2f})" if name != FACADE else "")
        for name, us in least.items()
    ]
    return f"{CASES[case].title}: {', '.join(shown)}"


def main() -> None:
    """Measure, or serve for a measurement."""
    if sys.argv[1:2] == [_SERVE]:
        serve(int(sys.argv[2]), Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=CASES_READ, help=f"of {', '.join(CASES)}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="streamydb-alone-") as home, servers(Path(home)) as running:
        for case in given.cases.split(","):
            print(measure(running, case, given), flush=True)
    print(f"in brackets: against the facade; {CONSTANT}: no store at all")


if __name__ == "__main__":
    main()
