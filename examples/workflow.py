"""A workflow: procedures that emit, follow-ups with a sliding window, and a stream to read.

    make up
    python examples/workflow.py [URL]

The graph and its procedures are in modules/monitor.py. Run this where the pipeline runs, as its
folder gets that file. It prints:

    refused: 777 is no HTTP status
    16 requests, 6 failed
      /cart  8 requests, 6 failed
      /home  8 requests, 0 failed
    an incident at 50 %, and ann looks at it
    closed by the workflow: 50 %, seen by ann
    the stream monitor.rates has said 0 25 50 50 25 0 0
    28 requests made 63 steps, each once
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from common import MODULES, clear, connect, deploy, folder
from streamydb.client import Client, ProcedureAbortedError, View

FLOWS = "$flows/monitor"
FINE = [("/home", 200), ("/cart", 201)]
BAD = [("/home", 200), ("/cart", 503)]


def feed(db: Client, requests: list[tuple[str, int]]) -> None:
    """Enter the workflow, one transaction for each request."""
    for page, status in requests:
        db.call("monitor.report", page=page, status=status)


def refuse(db: Client) -> None:
    """Show that a transaction that aborts emits nothing."""
    try:
        feed(db, [("/home", 777)])
    except ProcedureAbortedError as error:
        print("refused:", error.reason)


def settled(db: Client) -> int:
    """Wait until every follow-up that was made is done; return how many there have ever been."""
    now = db.read([FLOWS])
    flows: dict[str, int] = now[FLOWS] or {"made": 0, "done": 0}
    with db.watch(FLOWS, since=now.seq) as changes:
        while flows["done"] < flows["made"]:
            flows = next(changes).value
    return flows["done"]


def show_board(db: Client) -> None:
    """Print what the follow-ups have counted, as of one moment."""
    rows = {entry.key: entry.value for entry in db.scan("monitor/page/")}
    requests = sum(row["requests"] for row in rows.values())
    print(f"{requests} requests, {sum(row['failed'] for row in rows.values())} failed")
    for key, row in rows.items():
        page = key.removeprefix("monitor/page/")
        print(f"  {page}  {row['requests']} requests, {row['failed']} failed")


def acknowledge(view: View) -> Any:
    """Sign the incident: a client's own transaction on what the workflow writes, too."""
    incident = view.get("monitor/incident")
    incident["seen_by"] = "ann"
    view.put("monitor/incident", incident)
    return incident["percent"]


def main() -> None:
    """Watch a service fail and recover."""
    with connect(folder()) as db:
        before = settled(db)
        clear(db, "monitor/")
        deploy(db, MODULES / "monitor.py")
        begin = db.read([]).seq
        refuse(db)
        feed(db, 2 * FINE + 6 * BAD)
        settled(db)
        show_board(db)
        print(f"an incident at {db.run(acknowledge)} %, and ann looks at it")
        feed(db, 6 * FINE)
        steps = settled(db) - before
        (closed,) = db.get("monitor/closed")
        print(f"closed by the workflow: {closed['percent']} %, seen by {closed['seen_by']}")
        rates = islice(db.stream("monitor.rates", after=begin), 7)
        print("the stream monitor.rates has said", *(each.record["percent"] for each in rates))
        print(f"{db.get('monitor/requests')} requests made {steps} steps, each once")


if __name__ == "__main__":
    main()
