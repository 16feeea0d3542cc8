"""The leaderboard maintenance as a workflow: votes come in, and are settled in their order.

`cast` only takes a vote in. The stream `votes` calls `settle`, which counts it, removes the lowest
contestant when it is time, and slides the window: three procedures in one transaction, because no
vote may be counted between.

Keys: as those of `voter`, with `flow/` before them; `flow/trending` has the counts only, the window
is `$windows/voterflow.last`.
"""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Workflow, procedure

WINDOW = 100
PLACES = 3

flow = Workflow(
    emits={"cast": ["votes"]},
    triggers={"votes": ["settle"]},
    windows={"last": {"owner": "trend", "size": 100, "slide": 1}},
    nested={"settle": ["count", "remove", "trend"]},
)


@procedure
def begin(db: Any, contestants: list[str], rules: dict[str, int]) -> None:
    """Open the show; rules: every, per_phone."""
    votes = {who: 0 for who in contestants}  # noqa: C420 - procedures have no dict.fromkeys
    db.put("flow/show", {"votes": votes, "recorded": 0, "removed": [], **rules})


@procedure(keys=lambda _: [])
def cast(db: Any, phone: int, contestant: str) -> None:
    """Take a vote in."""
    db.emit("votes", {"phone": phone, "who": contestant})


def settle_keys(args: dict[str, Any]) -> list[str]:
    """What settling touches."""
    phones = [f"flow/phone/{vote['phone']}" for vote in args["batch"]]
    return [*phones, "flow/show", "flow/trending", "flow/board"]


@procedure(keys=settle_keys)
def settle(db: Any, batch: list[dict[str, Any]]) -> list[Any]:
    """Settle votes one by one; what became of each: a reason, or the count and who is removed."""
    told = []
    for vote in batch:
        reason = db.call("count", phone=vote["phone"], who=vote["who"])
        if reason is None:
            removed = db.call("remove")
            db.call("trend", who=vote["who"])
            told.append({"recorded": db.get("flow/show")["recorded"], "removed": removed})
        else:
            told.append(reason)
    return told


@procedure
def count(db: Any, phone: int, who: str) -> str | None:
    """Validate and count a vote; why it does not count."""
    show, key = db.get("flow/show"), f"flow/phone/{phone}"
    votes = show["votes"]
    if len(votes) == 1:
        return "the show is over"
    if who not in votes:
        return "not in the running"
    given = [each for each in db.get(key, []) if each in votes]
    if len(given) >= show["per_phone"]:
        return "this phone has voted"
    db.put(key, [*given, who])
    votes[who] += 1
    show["recorded"] += 1
    db.put("flow/show", show)
    return None


@procedure
def remove(db: Any) -> str | None:
    """Remove the contestant with the fewest votes when it is time."""
    show = db.get("flow/show")
    if show["recorded"] % show["every"]:
        return None
    votes = show["votes"]
    lowest: str = min(votes, key=lambda who: (votes[who], who))
    votes.pop(lowest)
    show["removed"].append(lowest)
    db.put("flow/show", show)
    return lowest


@procedure
def trend(db: Any, who: str) -> None:
    """Slide the window and show the boards."""
    last = db.window("last")
    before = last.items()
    last.insert(who)
    recent = db.get("flow/trending", {})
    recent[who] = recent.get(who, 0) + 1
    if len(before) == WINDOW:
        recent[before[0]] -= 1
    db.put("flow/trending", recent)
    votes = db.get("flow/show")["votes"]
    ranked = sorted(votes, key=lambda name: (-votes[name], name))
    running = [name for name in votes if recent.get(name, 0) > 0]
    trending = sorted(running, key=lambda name: (-recent[name], name))[:PLACES]
    db.put("flow/board", {
        "top": [[name, votes[name]] for name in ranked[:PLACES]],
        "bottom": [[name, votes[name]] for name in ranked[-PLACES:]],
        "trending": [[name, recent[name]] for name in trending],
    })  # fmt: skip
