"""Measurements through HTTP: `streamydb bench rest`.

`cases` makes the requests and judges the answers, `wire` speaks HTTP/1.1, `load` sends them from a
process of its own and takes the times. `peers` is another database, or a constant, behind a server
like the facade's, `postgresql` runs that database, `servers` starts them all; `run` measures, and
`report` shows.

In: options. Out: one JSON object or tables. Invariants: all servers of a case get the same requests
from the same program, in turn; a wrong answer ends the run.
"""

from __future__ import annotations
