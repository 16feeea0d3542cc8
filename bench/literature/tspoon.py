"""TSpoon's bank: transfers through transactional subgraphs, with queries beside them.

Affetti, Margara, Cugola: "TSpoon: Transactions on a stream processor", JPDC 140, 2020. An element
of a stream enters a transactional subgraph, which keeps one or several keyed states, and is a
transaction on all of them. Here a state is a range of keys, and the elements of a subgraph touch
no state of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
import numpy as np

from bench import workload as w
from bench.literature.driver import Session, StudyOptions, answer, session
from bench.literature.judging import Base, Changed, Invariant, LastValues, invariant
from bench.literature.players import Play, Played, latency_facts, playing
from bench.rest.servers import facade
from streamydb.cli.phases import Phases

__all__ = [
    "Alternating", "Graph", "Transfers", "TspoonJudge", "TspoonOptions", "audits_of", "loading",
    "queries", "tspoon",
]  # fmt: skip

AMOUNT_MAX: Final = 10
"""A transfer moves 1 to this."""

AUDITED: Final = 100
"""Accounts of the hot graph, which every audit adds up: TSpoon's smallest key space."""

QUERY_KEYS: Final = (1, 10, 100, 1000)
"""Keys of a query, in turn: TSpoon's sizes."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A transactional subgraph.

    Attributes:
        name: begins its keys.
        states: how many states a transfer updates, the same accounts in each.
        accounts: of each state.
    """

    name: str
    states: int
    accounts: int

    def key(self, state: int, account: int) -> str:
        """An account of a state."""
        return f"{self.name}/{state}/{account}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TspoonOptions(StudyOptions):
    """What to measure; see `streamydb bench tspoon --help`."""

    accounts: int = 100_000
    balance: int = 100
    theta: float = 0.99
    states: int = 3
    subgraphs: int = 3
    query_rate: float = 100.0
    query_clients: int = 8

    def graphs(self) -> dict[str, Graph]:
        """All subgraphs by name."""
        several = [Graph(f"c{n}", 1, self.accounts) for n in range(self.subgraphs)]
        named = [
            Graph("a", 1, self.accounts), Graph("b", self.states, self.accounts),
            Graph("hot", 1, AUDITED), *several,
        ]  # fmt: skip
        return {graph.name: graph for graph in named}

    def cases(self) -> dict[str, Transfers]:
        """What is measured."""
        graphs = self.graphs()
        several = [graphs[f"c{n}"] for n in range(self.subgraphs)]
        return {
            "1 subgraph, uniform": Transfers([graphs["a"]], self.seed),
            f"1 subgraph, Zipf {self.theta:g}": Transfers([graphs["a"]], self.seed, self.theta),
            f"1 subgraph, {AUDITED} accounts": Transfers([graphs["hot"]], self.seed),
            f"1 subgraph of {self.states} states": Transfers([graphs["b"]], self.seed),
            f"{self.subgraphs} subgraphs": Transfers(several, self.seed),
        }


class Transfers:
    """Transfers that enter subgraphs in turn; an account that cannot pay aborts them."""

    def __init__(self, graphs: Sequence[Graph], seed: int, theta: float = 0.0) -> None:
        """Draw accounts with the exponent `theta` of Zipf's distribution."""
        self._graphs = list(graphs)
        self._rng = np.random.default_rng(seed)
        n = self._graphs[0].accounts
        distribution = "zipf" if theta else "uniform"
        self._bank = w.Bank(n, distribution, seed, theta=theta)
        self.changes_each = 2.0 * self._graphs[0].states

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make transfers; see `Workload.payloads`."""
        source, target = self._bank.pairs(count)
        amounts = self._rng.integers(1, AMOUNT_MAX + 1, count).tolist()
        rows = zip(range(first, first + count), source, target, amounts, strict=True)
        graphs = self._graphs
        return [_transfer(graphs[row[0] % len(graphs)], *row) for row in rows]


def _transfer(graph: Graph, number: int, source: int, target: int, amount: int) -> bytes:
    updates = ",".join(
        f'{{"op":"add","key":"{graph.key(state, source)}","by":-{amount},"min":0}},'
        f'{{"op":"add","key":"{graph.key(state, target)}","by":{amount}}}'
        for state in range(graph.states)
    )
    return f'{{"id":"t{number}","updates":[{updates}]}}'.encode()


class Alternating:
    """Transfers of two workloads in turn."""

    def __init__(self, one: w.Workload, other: w.Workload) -> None:
        """Take them from `one` and `other`."""
        self._both = one, other
        self.changes_each = (one.changes_each + other.changes_each) / 2

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make transfers; see `Workload.payloads`."""
        return [
            self._both[number % 2].payloads(number, 1)[0] for number in range(first, first + count)
        ]


def loading(options: TspoonOptions, first: int) -> Iterator[bytes]:
    """Transactions that open all accounts, numbered from `first`."""
    value = b"%d" % options.balance
    for graph in options.graphs().values():
        for state in range(graph.states):
            prefix = f"{graph.name}/{state}/"
            made = w.funding(0, graph.accounts, value, first_id=first, key_prefix=prefix)
            for payload in made:
                yield payload
                first += 1


class TspoonJudge(Base):
    """No money is made or lost in any state, no account is ever overdrawn, queries agree."""

    def __init__(self, options: TspoonOptions) -> None:
        """Nothing is known."""
        self._options = options
        self._values = LastValues()
        self._overdrawn: list[str] = []
        self._changes = 0
        self.audits: list[tuple[str, int]] = []

    def changed(self, change: Changed) -> None:
        """Take over a balance."""
        self._changes += 1
        self._values.take(change)
        if _money(change.value) < 0:
            self._overdrawn.append(f"{change.key} was {change.value} at seq {change.seq}")

    def invariants(self) -> list[Invariant]:
        """Balances, bounds and audits."""
        states = [
            (graph, state) for graph in self._options.graphs().values()
            for state in range(graph.states)
        ]  # fmt: skip
        found = [
            invariant("no money is made or lost", len(states), self._sums()),
            invariant("no account is overdrawn", self._changes, self._overdrawn),
        ]
        if self.audits:
            expected = AUDITED * self._options.balance
            wrong = [f"{what} adds up to {total}" for what, total in self.audits
                     if total != expected]  # fmt: skip
            name = "every query shows whole transfers"
            found.append(invariant(name, len(self.audits), wrong))
        return found

    def _sums(self) -> Iterator[str]:
        sums: dict[str, list[int]] = {}
        for key, value in self._values.items():
            sums.setdefault(key.rpartition("/")[0], []).append(_money(value))
        for graph in self._options.graphs().values():
            for state in range(graph.states):
                name = f"{graph.name}/{state}"
                balances = sums.get(name, [])
                wanted = graph.accounts * self._options.balance
                if (len(balances), sum(balances)) != (graph.accounts, wanted):
                    yield (
                        f"{name}: {len(balances):,} accounts hold {sum(balances):,}, "
                        f"not {graph.accounts:,} that hold {wanted:,}"
                    )


def _money(value: Any) -> int:
    return value if isinstance(value, int) else -1


def queries(options: TspoonOptions, count: int) -> list[tuple[str, bytes]]:
    """Read-only requests: every second one is an audit, the others read accounts at random."""
    rng = np.random.default_rng(options.seed + 1)
    graph, hot = Graph("a", 1, options.accounts), Graph("hot", 1, AUDITED)
    audit = _read([hot.key(0, account) for account in range(AUDITED)])
    made = []
    for number in range(count):
        if number % 2:
            size = min(QUERY_KEYS[number // 2 % len(QUERY_KEYS)], options.accounts)
            accounts = rng.choice(options.accounts, size, replace=False).tolist()
            made.append(("/v1/read", _read([graph.key(0, account) for account in accounts])))
        else:
            made.append(("/v1/read", audit))
    return made


def _read(keys: list[str]) -> bytes:
    return msgspec.json.encode({"keys": keys, "consistency": "snapshot"})


def audits_of(played: Sequence[Played]) -> list[tuple[str, int]]:
    """What the audits among the queries added up to; -1 for a query that was refused."""
    found = []
    for each in played:
        if each.status != HTTPStatus.OK:
            found.append((f"query {each.request}, answered {each.status},", -1))
        elif each.request % 2 == 0:
            entries = msgspec.json.decode(each.body)["entries"].values()
            total = sum(_money(entry["value"]) if entry else -1 for entry in entries)
            found.append((f"query {each.request}", total))
    return found


def tspoon(options: TspoonOptions, phases: Phases) -> dict[str, Any]:
    """Measure transfers, then their latency alone and beside queries; prove the balances.

    Raises:
        BenchError: something failed.
    """
    judge = TspoonJudge(options)
    graphs = options.graphs()
    with session(options, phases) as measured:
        measured.append(loading(options, measured.run.appender.appended), "Opening the accounts")
        measured.throughput(options.cases())
        asked = _beside_queries(options, measured, judge)
        found = measured.prove(judge)
        parameters = {
            "accounts": options.accounts, "balance": options.balance, "theta": options.theta,
            "states": options.states, "subgraphs": options.subgraphs, "hot_accounts": AUDITED,
            "keys": sum(graph.states * graph.accounts for graph in graphs.values()),
        }  # fmt: skip
        return {**answer("tspoon", measured, found, parameters), **asked}


def _beside_queries(
    options: TspoonOptions, measured: Session, judge: TspoonJudge
) -> dict[str, Any]:
    """Latency alone and beside queries; the figures of the queries."""
    if options.latency_s <= 0:
        return {}
    graphs = options.graphs()
    transfers = Alternating(
        Transfers([graphs["a"]], options.seed + 2), Transfers([graphs["hot"]], options.seed + 3)
    )
    measured.latency(transfers)
    with facade(measured.run.engine, measured.run.phases) as front:
        seconds = 2 * options.latency_s  # the latency's warm-up is one half
        count = max(2, int(options.query_rate * seconds))
        play = Play(
            port=front.port, clients=options.query_clients, rate=options.query_rate,
            seconds=seconds, requests=queries(options, count),
        )  # fmt: skip
        with playing(play) as plays:
            alone, measured.latency_ms = measured.latency_ms, None
            measured.latency(transfers)
            played = plays.end()
    judge.audits = audits_of(played)
    beside, measured.latency_ms = measured.latency_ms, alone
    return {"latency_beside_queries_ms": beside, "queries": latency_facts(played)}
