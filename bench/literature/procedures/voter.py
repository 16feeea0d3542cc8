"""S-Store's leaderboard maintenance: votes, boards, and the removal of who is lowest.

Keys: `show` has the votes of the contestants in the running, `phone/<n>` whom a phone has voted
for, `trending` the last votes (the window) and how many are for whom, `board` what is shown.
"""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort, procedure

WINDOW = 100
PLACES = 3


@procedure
def begin(db: Any, contestants: list[str], rules: dict[str, int]) -> None:
    """Open the show; rules: every, per_phone."""
    votes = {who: 0 for who in contestants}  # noqa: C420 - procedures have no dict.fromkeys
    db.put("show", {"votes": votes, "recorded": 0, "removed": [], **rules})
    db.put("trending", {"last": [], "counts": {}})


@procedure(keys=lambda args: [f"phone/{args['phone']}", "show", "trending", "board"])
def vote(db: Any, phone: int, contestant: str) -> dict[str, Any]:
    """Record a vote, remove the lowest when it is time, slide the window, show the boards."""
    show = db.get("show")
    _record(db, show, f"phone/{phone}", contestant)
    removed = _remove(show) if show["recorded"] % show["every"] == 0 else None
    recent = _slide(db, contestant)
    db.put("show", show)
    db.put("board", _board(show["votes"], recent))
    return {"recorded": show["recorded"], "removed": removed}


def _record(db: Any, show: dict[str, Any], key: str, contestant: str) -> None:
    """Validate and count; the votes for who was removed are free again."""
    votes = show["votes"]
    if len(votes) == 1:
        raise Abort("the show is over")
    if contestant not in votes:
        raise Abort("not in the running")
    cast = [who for who in db.get(key, []) if who in votes]
    if len(cast) >= show["per_phone"]:
        raise Abort("this phone has voted")
    db.put(key, [*cast, contestant])
    votes[contestant] += 1
    show["recorded"] += 1


def _remove(show: dict[str, Any]) -> str:
    """Remove the contestant with the fewest votes; of equal ones the first by name."""
    votes = show["votes"]
    lowest: str = min(votes, key=lambda who: (votes[who], who))
    votes.pop(lowest)
    show["removed"].append(lowest)
    return lowest


def _slide(db: Any, contestant: str) -> dict[str, int]:
    """Take a vote into the window; how many of its votes are for whom."""
    window = db.get("trending")
    last, counts = window["last"], window["counts"]
    last.append(contestant)
    counts[contestant] = counts.get(contestant, 0) + 1
    if len(last) > WINDOW:
        counts[last.pop(0)] -= 1
    db.put("trending", window)
    return dict(counts)


def _board(votes: dict[str, int], recent: dict[str, int]) -> dict[str, Any]:
    """The most and the fewest votes, and the most of the last ones."""
    ranked = sorted(votes, key=lambda who: (-votes[who], who))
    running = [who for who in votes if recent.get(who, 0) > 0]
    trending = sorted(running, key=lambda who: (-recent[who], who))[:PLACES]
    return {
        "top": [[who, votes[who]] for who in ranked[:PLACES]],
        "bottom": [[who, votes[who]] for who in ranked[-PLACES:]],
        "trending": [[who, recent[who]] for who in trending],
    }
