"""A service's health as a workflow; examples/workflow.py deploys and feeds it.

report ─► requests ─► board      the requests of each page, and how many failed
                  └─► rate ─► rates ─► incident
"""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort, Workflow, procedure

flow = Workflow(
    emits={"report": ["requests"], "rate": ["rates"]},
    triggers={"requests": ["board", "rate"], "rates": ["incident"]},
    windows={"recent": {"owner": "rate", "size": 8, "slide": 4}},
)

PERCENT_MAX = 50


@procedure(keys=lambda args: ["monitor/requests"])
def report(db: Any, page: str, status: int) -> Any:
    """Take in a request that was served: the border of the workflow, called by clients."""
    if not 100 <= status <= 599:
        raise Abort(f"{status} is no HTTP status")
    db.emit("requests", {"page": page, "failed": status >= 500})
    return db.add("monitor/requests", 1)


@procedure(keys=lambda args: [f"monitor/page/{each['page']}" for each in args["batch"]])
def board(db: Any, batch: list[dict[str, Any]]) -> None:
    """Count the requests of a page."""
    for each in batch:
        key = f"monitor/page/{each['page']}"
        row = db.get(key, {"requests": 0, "failed": 0})
        row["requests"] += 1
        row["failed"] += 1 if each["failed"] else 0
        db.put(key, row)


@procedure(keys=lambda args: [])
def rate(db: Any, batch: list[dict[str, Any]]) -> None:
    """Say, whenever the window moves, how many of the last eight requests failed."""
    recent = db.window("recent")
    for each in batch:
        recent.insert(each["failed"])
    if recent.slid():
        items = recent.items()
        db.emit("rates", {"percent": 100 * sum(items) // len(items), "of": len(items)})


@procedure(keys=lambda args: ["monitor/incident", "monitor/closed"])
def incident(db: Any, batch: list[dict[str, Any]]) -> None:
    """Open an incident when half of the requests fail, close it when none does."""
    for each in batch:
        now = db.get("monitor/incident")
        if now is None and each["percent"] >= PERCENT_MAX:
            db.put("monitor/incident", {"percent": each["percent"], "seen_by": None})
        elif now is not None and each["percent"] == 0:
            db.delete("monitor/incident")
            db.append("monitor/closed", now)
