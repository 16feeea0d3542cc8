"""`streamydb bench rest`: all cases on all servers in turn, then reads while others write."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from bench.common import CommonOptions, Run, running
from bench.engine import cores
from bench.latency import Floats, open_loop, summary
from bench.machine import machine, stolen_s
from bench.rest.cases import CASES, CONSTANT, FACADE, KEY_PREFIX
from bench.rest.load import Figures, Job
from bench.rest.servers import Server, facade, peers, run_load
from streamydb import __version__
from streamydb.cli.phases import Phases

__all__ = ["RestOptions", "compared", "mixed_facts", "rest"]

_W = TypeVar("_W")

_START_S: Final = 1.2
_RESTED: Final = 4
"""How many times longer a case takes that mostly pauses."""

_READS: Final = ("live", "get", "strong", "read", "scan")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """What to measure; see `streamydb bench rest --help`."""

    keys: int = 100_000
    value_bytes: int = 100
    read_clients: tuple[int, ...] = (1, 16)
    write_clients: tuple[int, ...] = (1, 16, 256)
    mixed_clients: int = 16
    mixed_rate: float = 200.0
    mixed_pairs: int = 3
    cases: bool = True
    seconds: float = 8.0
    write_seconds: float = 15.0
    warm_up_s: float = 2.0
    settle_s: float = 30.0
    peers: bool = True
    gears: bool = True
    seed: int = 1
    parent: Path | None = None

    @classmethod
    def sized(
        cls,
        *,
        quick: bool,
        keys: int | None,
        seconds: float | None,
        pairs: int | None,
        **given: Any,
    ) -> RestOptions:
        """The options, for a long or a quick run where nothing else is said."""
        if not quick:
            return cls(
                keys=keys or 100_000, seconds=seconds or 8.0, mixed_pairs=pairs or 3, **given
            )
        seconds = seconds or 1.5
        return cls(
            keys=keys or 10_000, seconds=seconds, write_seconds=2 * seconds, warm_up_s=0.5,
            settle_s=3.0, read_clients=(16,), mixed_pairs=pairs or 1, **given,
        )  # fmt: skip


class _Puts:
    """Transactions that put a value under the keys that the requests read."""

    changes_each = 1.0

    def __init__(self, keys: int, value_bytes: int) -> None:
        self._keys, self._value = keys, "w" * value_bytes

    def payloads(self, first: int, count: int) -> list[bytes]:
        encode = msgspec.json.Encoder().encode
        put = {"op": "put", "value": self._value}
        return [
            encode({"id": f"t{n}", "updates": [{**put, "key": f"{KEY_PREFIX}{n % self._keys}"}]})
            for n in range(first, first + count)
        ]


class _Bench:
    """A run under way."""

    def __init__(
        self, options: RestOptions, run: Run, servers: Sequence[Server], phases: Phases
    ) -> None:
        self.options, self.servers, self.phases = options, servers, phases
        self._log = run
        self._seed = options.seed

    def warm_up(self) -> None:
        """Let the JVM compile what a write needs."""
        with self.phases.phase("Warming up with writes") as phase:
            found = self._measure(self.servers[0], "write", 16, self.options.settle_s)
            phase.outcome = f"p50 {found['p50']:.0f} ms at the end"

    def case(self, name: str, clients: int) -> Iterator[dict[str, Any]]:
        """Measure a case on every server in turn."""
        case, options = CASES[name], self.options
        seconds = options.write_seconds if case.writes else options.seconds
        seconds *= _RESTED if case.rate else 1
        who = "client" if clients == 1 else "clients"
        kind = "Writes" if case.writes else f"Reads, {case.title}"
        with self.phases.phase(f"{kind}, {clients} {who}") as phase:
            rows = []
            for server in self.servers:
                if server.name == FACADE or server.name in case.peers:
                    phase.note(server.name)
                    rows.append(self._measure(server, name, clients, seconds))
            self._seed += 1
            phase.outcome = ", ".join(f"{row['server']} {row['per_s']:,.0f}/s" for row in rows)
        yield from rows

    def mixed(self, server: Server) -> dict[str, Any]:
        """Reads at a fixed rate alone and with as many writes, half of the load, by turns."""
        rate = f"{self.options.mixed_rate:,.0f}/s"
        title = f"Reads at {rate}, alone and with writes, {server.name}"

        def beside() -> tuple[Figures, Figures]:
            reads, writes = self._run(server, (self._paced("read"), self._paced("write")))
            return reads, writes

        runs, stolen = self._by_turns(title, server, beside)
        facts = mixed_facts([(a, b, w) for a, (b, w) in runs])
        return {"server": server.name, **facts, "stolen_percent": stolen}

    def past_the_facade(self, server: Server) -> dict[str, Any]:
        """Reads alone and beside as many writes that go straight into Kafka.

        How much longer a constant takes then is the machine's part, which any server would feel.
        """

        def beside() -> tuple[Figures, Floats]:
            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(self._write_to_kafka)
                reads, *_ = self._run(server, (self._paced("read"),))
                return reads, writing.result()

        title = f"The same, with writes past the facade, {server.name}"
        runs, stolen = self._by_turns(title, server, beside)
        return {
            "server": server.name, **_beside_facts([(alone, reads) for alone, (reads, _) in runs]),
            "writes": summary(np.concatenate([latencies for _, (_, latencies) in runs])),
            "stolen_percent": stolen,
        }  # fmt: skip

    def _by_turns(
        self, title: str, server: Server, beside: Callable[[], tuple[Figures, _W]]
    ) -> tuple[list[tuple[Figures, tuple[Figures, _W]]], list[float]]:
        """Reads alone, then what ``beside`` measures of them and of writes, again and again.

        And how much of the machine's processor time its host gave to others in each pair, in
        percent.
        """
        with self.phases.phase(title) as phase:
            runs, stolen = [], []
            for number in range(self.options.mixed_pairs):
                phase.note(f"{number + 1} of {self.options.mixed_pairs}")
                before = stolen_s()
                alone, *_ = self._run(server, (self._paced("read"),))
                runs.append((alone, beside()))
                taken, whole = (b - a for a, b in zip(before, stolen_s(), strict=True))
                stolen.append(round(100 * taken / max(whole, 1e-9), 1))
            found = _beside_facts([(alone, reads) for alone, (reads, _) in runs])
            phase.outcome = f"p50 {found['p50_ratio']:.2f}, p99 {found['p99_ratio']:.2f} of alone"
        return runs, stolen

    def _write_to_kafka(self) -> Floats:
        """Write at the rate of the mixed run for as long as a job takes; latencies (s)."""
        options, log = self.options, self._log
        latencies, count = open_loop(
            log.engine, _Puts(options.keys, options.value_bytes), first=log.appender.appended,
            rate=options.mixed_rate, warm_up_s=_START_S + options.warm_up_s,
            seconds=options.write_seconds, note=lambda _: None,
        )  # fmt: skip
        log.appender.appended += count
        return latencies

    def _paced(self, case: str) -> dict[str, Any]:
        options = self.options
        clients = options.mixed_clients
        if CASES[case].writes:  # enough that one is free whenever a write is due
            clients = max(clients, round(options.mixed_rate))
        return {
            "case": case, "clients": clients, "rate": options.mixed_rate,
            "seconds": options.write_seconds,
        }  # fmt: skip

    def _measure(self, server: Server, case: str, clients: int, seconds: float) -> dict[str, Any]:
        """The figures of one case on one server."""
        job = {"case": case, "clients": clients, "rate": CASES[case].rate, "seconds": seconds}
        cpu_s, store_s = server.cpu_s(), server.store_cpu_s()
        (figures,) = self._run(server, (job,))
        micro = 1e6 / sum(figures.statuses.values())
        return {
            "case": case, "server": server.name, "clients": clients, **_facts(figures),
            "server_cpu_us": round(micro * (server.cpu_s() - cpu_s), 1),
            "store_cpu_us": round(micro * (server.store_cpu_s() - store_s), 1),
        }  # fmt: skip

    def _run(self, server: Server, jobs: Sequence[dict[str, Any]]) -> list[Figures]:
        """Run jobs against a server at the same time."""
        options = self.options
        shared: dict[str, Any] = {
            "port": server.port, "begin_s": time.monotonic() + _START_S,
            "warm_up_s": options.warm_up_s, "keys": options.keys,
            "value_bytes": options.value_bytes,
        }  # fmt: skip
        made = [Job(**shared, **job, seed=self._seed + n) for n, job in enumerate(jobs)]
        answers = run_load([msgspec.json.encode(job) for job in made])
        return [msgspec.json.decode(answer, type=Figures) for answer in answers]


def rest(options: RestOptions, phases: Phases) -> dict[str, Any]:
    """Measure reads and writes through HTTP.

    Raises:
        BenchError: something failed, or an answer was wrong.
    """
    common = CommonOptions(seed=options.seed, parent=options.parent, gears=options.gears)
    with running(common, phases) as run:
        run.load_values(options.keys, options.value_bytes)
        if options.gears:
            run.await_real_time()
        with facade(run.engine, phases) as front:
            if not options.peers:
                return _measured(options, run, [front], phases)
            with peers(options.keys, options.value_bytes, phases) as others:
                return _measured(options, run, [front, *others], phases)


def _measured(
    options: RestOptions, run: Run, servers: list[Server], phases: Phases
) -> dict[str, Any]:
    """The answer of a run on servers, the facade first."""
    bench = _Bench(options, run, servers, phases)
    bench.warm_up()
    cases = [(name, clients) for clients in options.read_clients for name in _READS]
    cases += [*(("write", clients) for clients in options.write_clients), ("rested", 1)]
    rows = [row for case in cases if options.cases for row in bench.case(*case)]
    mixed = [bench.mixed(server) for server in servers if server.name != CONSTANT]
    past = {
        server.name: bench.past_the_facade(server)
        for server in servers if server.name in {FACADE, CONSTANT}
    }  # fmt: skip
    return {
        "benchmark": "rest",
        "gears": "both" if options.gears else "micro-batch",
        "keys": options.keys,
        "value_bytes": options.value_bytes,
        "mixed_rate": options.mixed_rate,
        "mixed_clients": options.mixed_clients,
        "cases": compared(rows),
        "mixed": mixed,
        "past_the_facade": past[FACADE],
        "constant_beside": past.get(CONSTANT),
        "peers": [server.name for server in servers[1:]],
        "seed": options.seed,
        "cores": cores(),
        "version": __version__,
        "machine": machine(),
    }


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, those of the facade with ratios of their rate and median to each peer's."""
    others = {(row["case"], row["clients"], row["server"]): row for row in rows}
    names = sorted({row["server"] for row in rows} - {FACADE})
    for row in rows:
        if row["server"] != FACADE:
            continue
        for name in names:
            other = others.get((row["case"], row["clients"], name))
            if other is not None:
                row[f"rate_to_{name}"] = _ratio(row["per_s"], other["per_s"])
                row[f"p50_to_{name}"] = _ratio(row["p50"], other["p50"])
    return list(rows)


def _ratio(mine: float, other: float) -> float:
    """A ratio of three digits, however small."""
    return float(f"{mine / other:.3g}")


def mixed_facts(pairs: Sequence[tuple[Figures, Figures, Figures]]) -> dict[str, Any]:
    """How reads do beside writes, against alone: medians, of the ratios too.

    Args:
        pairs: reads alone, then reads and the writes beside them; run one after the other, so that
            a machine whose speed changes does so between two pairs rather than within one.
    """
    _, beside, writes = zip(*pairs, strict=True)
    written = sum(each.answers for each in writes)
    return {
        **_beside_facts([(alone, reads) for alone, reads, _ in pairs]),
        "writes": _medians(writes),
        "write_share": round(written / (written + sum(each.answers for each in beside)), 3),
    }


def _beside_facts(pairs: Sequence[tuple[Figures, Figures]]) -> dict[str, Any]:
    """How reads do beside writes, against alone."""

    def ratios(name: str) -> list[float]:
        each = (getattr(beside, name) / getattr(alone, name) for alone, beside in pairs)
        return [round(float(ratio), 3) for ratio in each]

    alone, beside = zip(*pairs, strict=True)
    found = {name: ratios(name) for name in ("per_s", "p50", "p99")}
    return {
        "pairs": len(pairs), "alone": _medians(alone), "with_writes": _medians(beside),
        "rate_ratio": statistics.median(found["per_s"]),
        "p50_ratio": statistics.median(found["p50"]), "p50_ratios": found["p50"],
        "p99_ratio": statistics.median(found["p99"]), "p99_ratios": found["p99"],
    }  # fmt: skip


def _medians(runs: Sequence[Figures]) -> dict[str, Any]:
    """Of each figure the median."""
    facts = [_facts(each) for each in runs]
    return {name: statistics.median(each[name] for each in facts) for name in facts[0]}


def _facts(figures: Figures) -> dict[str, Any]:
    """Figures without what a run that succeeds need not say."""
    facts: dict[str, Any] = msgspec.to_builtins(figures)
    del facts["statuses"]
    return facts
