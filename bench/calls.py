"""What a call of a stored procedure costs in the pure classes, beside plain updates; no Spark.

python -m bench.calls [--batch TRANSACTIONS] [--tpcc]
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from bench.literature.driver import module_file
from bench.literature.tpcc_inputs import FULL_MIX, TWO, Inputs
from bench.literature.tpcc_rows import Population, Scale
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.key_processor.value_store import ValueStore
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.pipeline.warmup import warm_up
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor

Make: TypeAlias = Callable[[int], dict[str, Any]]
BATCH = 5_000
MODULE = b"""
from streamydb.procedures import Abort

def transfer(db, source, target, amount):
    if db.get(source, 0) < amount:
        raise Abort(f"{source} cannot pay {amount}")
    db.add(source, -amount)
    db.add(target, amount)

def move(db, source, target, amount):
    left, right = db.get(source, 0), db.get(target, 0)
    if left < amount:
        raise Abort(f"{source} cannot pay {amount}")
    db.put(source, left - amount)
    db.put(target, right + amount)
"""
_SCALE = Scale(warehouses=1, items=10_000, customers=300)


class Bench:
    """A database with one shard in memory."""

    def __init__(self, values: ValueStore | None = None) -> None:
        """Deploy the module and fill the accounts; ``values``: where they are, if not in memory."""
        self.config = ShardConfig("bench", "bench", 1, 1, 1_000_000)
        self.state = MemoryBlobs(), values or MemoryValues(), MemoryIdTables()
        self.modules = MemoryModules()
        self.feedback: list[bytes] = []
        self.offset = 0
        self._deploy("bank", MODULE)
        puts = [{"op": "put", "key": f"a{i}", "value": 10**6} for i in range(997)]
        self.run([{"updates": [put]} for put in puts])

    def load_tpcc(self) -> tuple[Make, Make]:
        """Deploy TPC-C and put its rows; return how new-orders and payments are made, and how all
        five transactions. Each is to be executed in the order in which it was made.
        """
        self._deploy("tpcc", module_file("tpcc").read_bytes())
        population = Population(_SCALE, 1)
        rows = [json.loads(raw)["updates"] for raw in population.transactions(0)]
        for first in range(0, len(rows), BATCH):
            self.run([{"updates": updates} for updates in rows[first : first + BATCH]])
        number = count()

        def maker(mix: Mapping[str, int]) -> Make:
            drawn = Inputs(population, 1, mix)

            def make(_: int) -> dict[str, Any]:
                (raw,) = drawn.payloads(next(number), 1)
                return {"call": json.loads(raw)["call"]}

            return make

        return maker(TWO), maker(FULL_MIX)

    def _deploy(self, name: str, text: bytes) -> None:
        digest, procedures = self.modules.put(text), compile_module(name, text).procedures
        self.run([{"deploy": {"module": name, "hash": digest, "procedures": procedures}}])

    def run(self, transactions: list[dict[str, Any]]) -> list[float]:
        """Run one batch; seconds of processor time of parsing, of the shard's step, of execution,
        and of formatting.
        """
        n, at = len(transactions), self.offset
        named = [{"id": f"t{at + i}", **each} for i, each in enumerate(transactions)]
        values = [json.dumps(each).encode() for each in named]
        self.offset += n
        times = [time.process_time()]
        columns = np.zeros(n, np.int32), np.arange(at, at + n), np.full(n, at)
        inputs = [routed.block for routed in parse_feedback(self.feedback, self.config)]
        routed = parse_transactions(*columns, values, 1)
        inputs += [each.block for each in routed]
        times.append(time.process_time())
        shard = KeyTransactionProcessor(self.config, 0, *self.state, Life("bench"))
        granted = [emitted.message for emitted in shard.step(TO_SHARD.each(inputs))]
        times.append(time.process_time())
        items = list(TransactionProcessor(self.config, 1, 1, self.modules).step(granted))
        times.append(time.process_time())
        records = [o.formatted(item, "bench") for item in items]
        times.append(time.process_time())
        fed = [each for each in records if each.topic == o.FEEDBACK]
        self.feedback = [block for each in fed for block in each.values.tolist()]
        return np.diff(times).tolist()


def called(name: str) -> Make:
    """Transfers by a procedure."""

    def make(i: int) -> dict[str, Any]:
        source, target = f"a{i % 997}", f"a{(7 * i + 1) % 997}"
        args = {"source": source, "target": target, "amount": 1}
        return {"call": {"procedure": f"bank.{name}", "args": args, "keys": [source, target]}}

    return make


def updated(by: float) -> Make:
    """Transfers by updates; a fraction is left to Python."""

    def make(i: int) -> dict[str, Any]:
        source = {"op": "add", "key": f"from/{by}/{i % 997}", "by": -by}
        return {"updates": [source, {"op": "add", "key": f"to/{by}/{i % 991}", "by": by}]}

    return make


def main() -> None:
    """Print the medians of some batches each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=BATCH, help="transactions of a plan")
    parser.add_argument("--batches", type=int, default=5, help="plans of which it is the median")
    parser.add_argument("--tpcc", action="store_true", help="TPC-C's transactions, too")
    given = parser.parse_args()
    warm_up()
    bench = Bench()
    kinds = {
        "call: get, two adds": called("transfer"), "call: two gets, two puts": called("move"),
        "updates in Python": updated(0.5), "updates": updated(1),
    }  # fmt: skip
    if given.tpcc:
        kinds["TPC-C, two"], kinds["TPC-C, all five"] = bench.load_tpcc()
    print(f"{'us per transaction':<26}parse  shard  execute  format    all")
    for name, make in kinds.items():
        batches = [[make(i) for i in range(given.batch)] for _ in range(given.batches)]
        gc.collect()
        gc.freeze()  # as the pipeline's workers do
        runs = np.array([bench.run(batch) for batch in batches]) / given.batch * 1e6
        stages = np.median(runs, axis=0)
        shown = "  ".join(f"{stage:5.1f}" for stage in stages)
        print(f"{name:<26}{shown}   {np.median(runs.sum(axis=1)):6.1f}")


if __name__ == "__main__":
    main()
