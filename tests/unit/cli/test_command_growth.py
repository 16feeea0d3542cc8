"""What a command computes grows as the log and the lines that it is given: n, 2n and 4n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from streamydb.testing.in_process import scenario
from streamydb.verify.oracle.order import LogRecord
from streamydb.verify.oracle.replay import replay
from tests.support.work import Counter, grows_faster

SMALL: Final = 100


def _replayed(size: int) -> Callable[[], object]:
    """Hot keys, ids used again, ranges."""
    bodies = [
        {
            "id": f"t{n - n % 3}",
            "reads": [f"k/{n:05}", {"range": {"prefix": "h/"}}],
            "updates": [{"op": "add", "key": f"h/{n % 2}", "value": 1},
                        {"op": "put", "key": f"k/{n:05}", "value": n}],
        } for n in range(size)
    ]  # fmt: skip
    log = {0: [LogRecord(n, 1_000 + n, msgspec.json.encode(b)) for n, b in enumerate(bodies)]}
    return lambda: replay(log, database="d", initial_partitions=1)


MEASURED: Final = {"serial replay: check, explain, whatif": _replayed}


@pytest.mark.parametrize("name", MEASURED)
@scenario
async def test_costs_grow_as_the_input(name: str) -> None:
    counter = Counter()
    costs = []
    for size in (SMALL, 2 * SMALL, 4 * SMALL):
        task = MEASURED[name](size)

        async def run(task: Callable[[], object] = task) -> None:
            task()

        costs.append(await counter.worked(run))
    counter.close()
    assert costs[0].calls > SMALL  # something was executed
    assert not grows_faster(costs), (name, costs)
