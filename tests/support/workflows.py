"""Helpers of tests of workflows: the voter of S-Store, and a log in memory."""

from __future__ import annotations

import json
from typing import Any

from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord

HEAD = "from streamydb.procedures import Abort, Workflow, procedure\n"
VOTER = (
    HEAD
    + """
flow = Workflow(
    emits={"vote": ["votes"], "count": ["counted"]},
    triggers={"votes": ["count"], "counted": ["board", "trend"]},
    windows={"last": {"owner": "trend", "size": 4, "slide": 2}},
)

@procedure(keys=lambda args: [f"phone/{args['phone']}"])
def vote(db, phone, who):
    if db.add(f"phone/{phone}", 1) > 3:
        raise Abort("three votes a phone")
    db.emit("votes", {"who": who})
    return db.batch

@procedure(keys=lambda args: [f"votes/{vote['who']}" for vote in args["batch"]])
def count(db, batch):
    for vote in batch:
        total = db.add(f"votes/{vote['who']}", 1)
        db.emit("counted", {"who": vote["who"], "total": total})
    return db.batch

@procedure(keys=lambda args: ["board"])
def board(db, batch):
    seen = db.get("board", {})
    for each in batch:
        seen[each["who"]] = each["total"]
    db.put("board", seen)

@procedure(keys=lambda args: ["trending"])
def trend(db, batch):
    last = db.window("last")
    for each in batch:
        last.insert(each["who"])
    if last.slid():
        db.put("trending", last.items())
"""
)


class Log:
    """A log with one partition: what is appended, and the follow-ups that come of it."""

    def __init__(self, text: str, name: str = "voter") -> None:
        self.modules = MemoryModules()
        digest = self.modules.put(text.encode())
        module = compile_module(name, text.encode())
        self.oracle = Oracle("db", modules=self.modules)
        self.records: list[bytes] = []
        self.outputs: list[OutputRecord] = []
        self.waiting: list[bytes] = []
        procedures = {each: list(args) for each, args in module.procedures.items()}
        deploy = {"module": name, "hash": digest, "procedures": procedures}
        self.append(json.dumps({"id": "deploy", "deploy": deploy}).encode())

    def append(self, raw: bytes, ts_ms: int | None = None) -> dict[str, Any]:
        """Execute one record; its result. Follow-ups wait."""
        at = len(self.records)
        self.records.append(raw)
        found = self.oracle.apply(raw, 0, at, ts_ms or 1000 + at)
        self.outputs += found
        self.waiting += [out.value or b"" for out in found if out.topic == "transactions"]
        result: dict[str, Any] = json.loads(found[0].value or b"")
        return result

    def call(self, procedure: str, keys: list[str], **args: Any) -> dict[str, Any]:
        call = {"procedure": procedure, "args": args, "keys": keys}
        return self.append(json.dumps({"id": f"t{len(self.records)}", "call": call}).encode())

    def declare(self, name: str, prefix: str, **rules: Any) -> None:
        """Declare a constraint."""
        declared = {"declare": {"name": name, "prefix": prefix, **rules}}
        raw = json.dumps({"id": f"rule-{len(self.records)}", "constrain": declared}).encode()
        if self.append(raw)["status"] != "committed":
            raise AssertionError(f"refused: {declared}")

    def settle(self) -> list[dict[str, Any]]:
        """Execute follow-ups until there are no more; their results."""
        found = []
        while self.waiting:
            found.append(self.append(self.waiting.pop(0)))
        return found

    def value(self, key: str) -> Any:
        return json.loads(self.oracle.state[key][0]) if key in self.oracle.state else None

    def streams(self) -> list[tuple[str, Any]]:
        values = [json.loads(out.value or b"") for out in self.outputs if out.topic == "streams"]
        return [(value["stream"], value["record"]) for value in values]
