"""The stored procedures of a simulation: versions of one module, deployed and called at random."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from simulator.workflows import FLOW_TEXTS
from streamydb.procedures.modules import MemoryModules, compile_module, hash_of

__all__ = ["MODULES", "Calls"]

_TEXT: Final = """
import math
from streamydb.procedures import Abort, procedure

VERSION = %d

def move(db, source, target, by):
    if by < 0:
        raise Abort(f"version {VERSION} moves no {by}")
    db.add(source, -by, min=-40)
    db.add(target, by * VERSION)
    return [db.get(source), db.get(target)]

def mark(db, key):
    db.put(key, {"version": VERSION, "now": db.now, "seq": db.seq, "id": db.id})
    return VERSION

def draw(db, keys):
    numbers = [db.random.randint(1, 6) for _ in keys]
    for key, number in zip(keys, numbers):
        if number == 6:
            db.delete(key)
        elif number > 2:
            db.put(key, number)
    return {"sum": sum(numbers), "share": db.random.random(), "root": math.sqrt(numbers[0])}

def gather(db, keys, into):
    seen = {str(db.get(key)) for key in keys}
    db.append(into, sorted(seen)[:3])
    return list(seen)

def sloppy(db, key):
    return db.get(key)["version"] / (VERSION - 1)

def twice(db, key):
    first = db.next_id(key)
    db.max(key, first * 2)
    return [first, db.get(key), db.version(key), db.exists(key)]

def scan(db, named, into):
    prefix, start, end = named.get("prefix"), named.get("start"), named.get("end")
    count = db.count(prefix, start=start, end=end)
    db.put(into, [VERSION, count])
    found = db.scan(prefix, start=start, end=end)
    return [count, len(found), [[key, str(value)[:9]] for key, value in found[-3:]]]

def lease(db, key, ttl):
    if VERSION == 1 and db.exists(key):
        db.touch(key, ttl_ms=ttl)
        return db.now
    db.put(key, [], ttl_ms=ttl)
    db.append(key, VERSION)
    if VERSION == 3:
        db.append(key, db.seq, ttl_ms=2 * ttl)
    return len(db.get(key))

def weigh(db, key):
    ends = ("x" * 25000,) * 2100
    db.put(key, VERSION)
    return "y".endswith(ends)

def spin(db, key):
    db.put(key, 1)
    while VERSION:
        len("x" * 50000)
"""
_EXTRA: Final = """
def late(db, key):
    return db.get(key, "nothing")
"""
_TEXTS: Final = tuple(
    (_TEXT % version + (_EXTRA if version == 2 else "")).encode() for version in (1, 2, 3)
)

MODULES: Final = MemoryModules({hash_of(text): text for text in FLOW_TEXTS})
"""All versions, as the folder of a pipeline has them."""

_VERSIONS: Final = tuple((MODULES.put(text), compile_module("sim", text)) for text in _TEXTS)


@dataclass
class Calls:
    """Draws deploys and calls. ``random``: a chance of its own, so that other records stay."""

    random: random.Random
    keys: list[str]
    rate: float

    def wanted(self) -> bool:
        """Return True if the next record is one of ours."""
        return self.random.random() < self.rate

    def parts(self) -> dict[str, Any]:
        """The fields of a transaction, without its id."""
        rng = self.random
        found = self._deploy() if rng.random() < 0.08 else self._call()
        if rng.random() < 0.2:
            found["checks"] = [{"key": rng.choice(self.keys), "version": rng.choice([0, 0, 7])}]
        if rng.random() < 0.3:
            found["reads"] = [rng.choice([*self.keys, "$procedures/sim"])]
        return found

    def _deploy(self) -> dict[str, Any]:
        digest, module = self.random.choice(_VERSIONS)
        procedures = {name: list(args) for name, args in module.procedures.items()}
        if self.random.random() < 0.1:
            del procedures["move"]
        name = self.random.choice(["sim", "sim", "sim", "other"])
        return {"deploy": {"module": name, "hash": digest, "procedures": procedures}}

    def _call(self) -> dict[str, Any]:
        rng = self.random
        keys = rng.sample(self.keys, min(len(self.keys), rng.randint(1, 3)))
        first, last = keys[0], keys[-1]
        name, args = rng.choice(
            [
                ("move", {"source": first, "target": last, "by": rng.choice([0, 1, 2.5, -1])}),
                ("mark", {"key": first}), ("mark", {"key": last}),
                ("draw", {"keys": keys}),
                ("gather", {"keys": keys, "into": first}),
                ("sloppy", {"key": first}),
                ("twice", {"key": last}),
                ("late", {"key": first}),
                ("mark", {"wrong": 1}),
            ]
        )  # fmt: skip
        drawn = rng.random()
        if drawn < 0.01:
            name, args = "spin", {"key": first}
        elif drawn < 0.1:
            name, args = "weigh", {"key": first}
        module = "other" if rng.random() < 0.1 else "sim"
        declared = keys[1:] if rng.random() < 0.1 else keys
        call: dict[str, Any] = {"procedure": f"{module}.{name}", "args": args, "keys": declared}
        if rng.random() < 0.2:
            call["keys"], call["reads"] = declared[:1], [*declared[1:], "$procedures/sim"]
        return {"call": call}
