"""What a call of a stored procedure costs in the pure classes, beside plain updates; no Spark.

    python -m bench.calls
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from streamydb.columns.plans import Life
from streamydb.columns.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.key_processor.value_store import ValueStore
from streamydb.pipeline.warmup import warm_up
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.parser import parse_feedback, parse_transactions

BATCH = 5_000
MODULE = b"""
from streamydb.procedures import Abort

def transfer(db, source, target, amount):
    if db.get(source, 0) < amount:
        raise Abort(f"{source} cannot pay {amount}")
    db.add(source, -amount)
    db.add(target, amount)
"""


class Bench:
    """A database with one shard in memory."""

    def __init__(self, values: ValueStore | None = None) -> None:
        """Deploy the module and fill the accounts; ``values``: where they are, if not in memory."""
        self.config = ShardConfig("bench", "bench", 1, 1, 1_000_000)
        self.state = MemoryBlobs(), values or MemoryValues(), MemoryIdTables()
        self.modules = MemoryModules()
        digest = self.modules.put(MODULE)
        procedures = compile_module("bank", MODULE).procedures
        self.feedback: list[bytes] = []
        self.offset = 0
        deploy = {"module": "bank", "hash": digest, "procedures": procedures}
        self.run([{"deploy": deploy}])
        puts = [{"op": "put", "key": f"a{i}", "value": 10**6} for i in range(997)]
        self.run([{"updates": [put]} for put in puts])

    def run(self, transactions: list[dict[str, Any]]) -> list[float]:
        """Run one batch; seconds of processor time of parsing, of the shard's step, of execution
        and formatting.
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
        granted = [emitted.block for emitted in shard.step(inputs)]
        times.append(time.process_time())
        items = TransactionProcessor(self.config, 1, 1, self.modules).step(granted)
        records = [o.formatted(item, "bench") for item in items]
        times.append(time.process_time())
        fed = [each for each in records if each.topic == o.FEEDBACK]
        self.feedback = [block for each in fed for block in each.values.tolist()]
        return np.diff(times).tolist()


def called(i: int) -> dict[str, Any]:
    """A transfer by procedure."""
    source, target = f"a{i % 997}", f"a{(7 * i + 1) % 997}"
    args = {"source": source, "target": target, "amount": 1}
    call = {"procedure": "bank.transfer", "args": args, "keys": [source, target]}
    return {"call": call}


def updated(by: float) -> Callable[[int], dict[str, Any]]:
    """A transfer by updates; a fraction is left to Python."""

    def make(i: int) -> dict[str, Any]:
        source = {"op": "add", "key": f"from/{by}/{i % 997}", "by": -by}
        return {"updates": [source, {"op": "add", "key": f"to/{by}/{i % 991}", "by": by}]}

    return make


def main() -> None:
    """Print the best of five batches each."""
    warm_up()
    bench = Bench()
    kinds = {"call": called, "updates in Python": updated(0.5), "updates": updated(1)}
    print(f"{'us per transaction':<20} parse  shard  execute and format")
    for name, make in kinds.items():
        runs = [bench.run([make(i) for i in range(BATCH)]) for _ in range(5)]
        best = np.min(runs, axis=0) / BATCH * 1e6
        print(f"{name:<20} {best[0]:5.1f}  {best[1]:5.1f}  {best[2]:5.1f}")


if __name__ == "__main__":
    main()
