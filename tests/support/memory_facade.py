"""A facade over a database in memory for clients in other languages.

    python -m tests.support.memory_facade

Prints its address, then obeys the lines that it reads: `cut` breaks all connections, `stop` lets no
transaction be executed, `go` executes them again. Each is answered by a line. It ends with its
standard input.
"""

from __future__ import annotations

import sys
from typing import Any

from streamydb.testing.memory import MemoryDatabase
from tests.support.served import serving


def main() -> None:
    """Serve until the input ends."""
    database = MemoryDatabase()
    with serving(database=database) as served:

        def execute() -> None:
            database.executing = True
            database.run()

        def stop() -> None:
            database.executing = False

        commands = {"cut": served.cut, "stop": stop, "go": execute}
        _say(served.url)
        for line in sys.stdin:
            acceptor: Any = served.server.servers[0]  # it serves: its address was printed and used
            acceptor._loop.call_soon_threadsafe(commands[line.strip()])
            _say("done")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
