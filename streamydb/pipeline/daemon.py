"""Spark's daemon of Python workers, which has loaded our code before it forks them.

Loading libraries and kernels takes a process about a second, and a query needs several workers. So
the daemon does it once, when Spark asks for the first one, and all of them share what is loaded.
Spark is told of it by `spark.python.daemon.module`, on one machine (`pipeline.session`).

Nothing that is loaded may start a thread, as a fork has only the thread that forks. What fails here
is left to the workers, who load for themselves what they lack, and tell of it.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["load", "main"]


def load() -> None:
    """Load what workers need; keep Python's collector away from it, also for the pages' sake."""
    import pandas as pd  # noqa: F401 - Spark's side of a worker imports these four
    import pyarrow.compute as pc  # noqa: F401
    from pyspark import worker  # noqa: F401
    from pyspark.sql.streaming.proto import StateMessage_pb2  # noqa: F401

    from streamydb.pipeline import hosts, stateful  # noqa: F401 - our side
    from streamydb.pipeline.warmup import warm_up

    warm_up()
    gc.collect()
    gc.freeze()


def main() -> None:
    """Load, then fork a worker for each request of Spark, until it ends this process.

    Standard output belongs to Spark, which reads from it where the daemon listens.
    """
    from pyspark import daemon

    try:
        load()
    except Exception as error:  # noqa: BLE001 - a worker that needs it fails with the whole story
        sys.stderr.write(f"the Python workers load for themselves: {error}\n")
    daemon.manager()


if __name__ == "__main__":
    main()
