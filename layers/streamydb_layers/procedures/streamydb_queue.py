"""The procedures of queues: claims and their ends, by commit time alone.

Keys of a queue, under its prefix:
- `item/<id>`: the value, written once, when it is enqueued.
- `inbox`: ids in the order of their commits; an element is an id or a list of ids.
- `page/<n>`: ids that were moved out of the inbox, older ones than all in it.
- `ends`: the pages in use, how many ids are in them, the number of first claims, and for each lane
  the earliest end of a claim, or an earlier time.
- `lane/<n>`: claims, id -> [end in ms, attempts, number of the item, seq of the claim].
- `dead/<id>`: items that were given up.

Which page is in use is not known before a call has its place in the order, so a call declares a
window of pages; outside of it it aborts, and says where the page is.
"""

from __future__ import annotations

from typing import Any

from streamydb.procedures import Abort, procedure

LANES = 16
LANE_ITEMS = 128
PAGE_ITEMS = 128
MOVED_MAX = 512
ID_BYTES_MAX = 128
EXHAUSTED_MAX = 16
NEVER = 9007199254740991


@procedure
def settle(db: Any, prefix: str, window: list[int]) -> Any:
    """Move ids from the inbox to the pages."""
    ends = _ends(db, prefix)
    ids, rest = _first(db.get(prefix + "inbox", []), MOVED_MAX)
    moved = 0
    while moved < len(ids) and _within(ends["tail"], window, moved):
        key = f"{prefix}page/{ends['tail']}"
        page = db.get(key, [])
        part = ids[moved : moved + PAGE_ITEMS - len(page)]
        db.put(key, page + part)
        moved += len(part)
        if len(page) + len(part) >= PAGE_ITEMS:
            ends["tail"] += 1
    if moved:
        ends["paged"] += moved
        rest = ids[moved:] + rest
        _put_inbox(db, prefix, rest)
        db.put(prefix + "ends", ends)
    return {"left": len(rest), "page": ends["tail"]}


@procedure
def claim(
    db: Any,
    prefix: str,
    window: list[int],
    lane: int,
    count: int,
    timeout_ms: int,
    attempts_max: int,
) -> Any:
    """Claim items: those whose time is up first, then new ones, each in the order of commits."""
    ends = _ends(db, prefix)
    lanes: dict[int, Any] = {}
    again, exhausted = _overdue(db, prefix, ends, lanes, count, attempts_max)
    until = db.now + timeout_ms
    given = []
    for number, item, place, attempts in again:
        lanes[place][item] = [until, attempts + 1, number, db.seq]
        given.append([item, place, db.seq, attempts + 1, until, number])
    places = _free(db, prefix, lanes, lane, count - len(again))
    left = -1
    if places:
        held = _held(db, prefix, lanes)
        fresh, left = _fresh(db, prefix, ends, window, len(places), held)
        for place, item in zip(places, fresh, strict=False):
            ends["claimed"] += 1
            lanes[place][item] = [until, 1, ends["claimed"], db.seq]
            given.append([item, place, db.seq, 1, until, ends["claimed"]])
    for place, entries in lanes.items():
        ends["due"][place] = min([NEVER] + [entry[0] for entry in entries.values()])
    _put_lanes(db, prefix, {each[1]: lanes[each[1]] for each in given})
    if ends != _ends(db, prefix):  # also if all that was taken is passed over
        db.put(prefix + "ends", ends)
    full = not given and not places
    return {
        "items": given,
        "exhausted": exhausted,
        "page": ends["head"],
        "inbox": left,
        "full": full,
    }


@procedure
def complete(db: Any, prefix: str, claims: list[Any]) -> Any:
    """End claims and remove their items; tells for each whether it still stood."""
    lanes: dict[int, Any] = {}
    done = []
    for item, place, token in claims:
        stands = _stands(db, prefix, lanes, item, place, token)
        if stands:
            lanes[place].pop(item)
            db.delete(f"{prefix}item/{item}")
        done.append(stands)
    _put_lanes(db, prefix, lanes)
    return done


@procedure
def forget(db: Any, prefix: str, claims: list[Any]) -> Any:
    """End claims of items that were cancelled; tells for each whether it still stood.

    An item that was added again meanwhile is for anybody: its new id may have been passed over.
    """
    ends = _ends(db, prefix)
    lanes: dict[int, Any] = {}
    done = []
    for item, place, token in claims:
        stands = _stands(db, prefix, lanes, item, place, token)
        if stands and db.get(f"{prefix}item/{item}") is None:
            lanes[place].pop(item)
        elif stands:
            lanes[place][item] = [db.now, 0, lanes[place][item][2], 0]
            ends["due"][place] = min(ends["due"][place], db.now)
            db.put(prefix + "ends", ends)
        done.append(stands)
    _put_lanes(db, prefix, lanes)
    return done


@procedure
def cancel(db: Any, prefix: str, item: str) -> Any:
    """Remove an item and end its claim; tells whether it was there.

    Its id may stay in the inbox or in a page. Whoever claims passes it over.
    """
    there = db.get(f"{prefix}item/{item}") is not None
    db.delete(f"{prefix}item/{item}")
    for place in range(LANES):
        lanes: dict[int, Any] = {}
        if item in _lane(db, prefix, lanes, place):
            lanes[place].pop(item)
            _put_lanes(db, prefix, lanes)
    return there


@procedure
def extend(db: Any, prefix: str, claims: list[Any], timeout_ms: int) -> Any:
    """Let claims end later (or earlier); gives for each its end, or null if it is over."""
    ends = _ends(db, prefix)
    lanes: dict[int, Any] = {}
    until = db.now + timeout_ms
    given = []
    for item, place, token in claims:
        if _stands(db, prefix, lanes, item, place, token):
            lanes[place][item][0] = until
            ends["due"][place] = min(ends["due"][place], until)
            given.append(until)
        else:
            given.append(None)
    _put_lanes(db, prefix, lanes)
    db.put(prefix + "ends", ends)
    return given


@procedure
def release(db: Any, prefix: str, claims: list[Any], delay_ms: int, attempts_max: int) -> Any:
    """Give items back, or up after so many attempts; tells for each whether the claim stood."""
    ends = _ends(db, prefix)
    lanes: dict[int, Any] = {}
    until = db.now + delay_ms
    done = []
    for item, place, token in claims:
        stands = _stands(db, prefix, lanes, item, place, token)
        if stands and lanes[place][item][1] >= attempts_max:
            _give_up(db, prefix, lanes[place], item)
        elif stands:
            entry = lanes[place][item]
            lanes[place][item] = [until, entry[1], entry[2], 0]
            ends["due"][place] = min(ends["due"][place], until)
        done.append(stands)
    _put_lanes(db, prefix, lanes)
    db.put(prefix + "ends", ends)
    return done


@procedure
def bury(db: Any, prefix: str, claims: list[Any]) -> Any:
    """Give up items whose last attempt is over; tells for each whether it was so."""
    lanes: dict[int, Any] = {}
    done = []
    for item, place, token in claims:
        stands = _stands(db, prefix, lanes, item, place, token)
        over = stands and lanes[place][item][0] <= db.now
        if over:
            _give_up(db, prefix, lanes[place], item)
        done.append(over)
    _put_lanes(db, prefix, lanes)
    return done


def _ends(db: Any, prefix: str) -> Any:
    return db.get(
        prefix + "ends",
        {"head": 0, "taken": 0, "tail": 0, "paged": 0, "claimed": 0, "due": [NEVER] * LANES},
    )


def _first(inbox: list[Any], wanted: int) -> tuple[list[str], list[Any]]:
    """The first ids of an inbox, and the rest of it, which is not looked at: it may be long.

    What is no id is left out, so that it stops nobody.
    """
    ids: list[str] = []
    seen = 0
    for entry in inbox:
        if len(ids) >= wanted:
            break
        seen += 1
        entries = entry if isinstance(entry, list) else [entry]
        ids.extend([each for each in entries if isinstance(each, str) and _fits(each)])
    return ids[:wanted], ids[wanted:] + inbox[seen:]


def _fits(item: str) -> bool:
    """Return True if an id has at most so many bytes of UTF-8."""
    if item.isascii() or len(item) > ID_BYTES_MAX:
        return 1 <= len(item) <= ID_BYTES_MAX
    sizes = [1 + (c >= "\x80") + (c >= "\u0800") + (c >= "\U00010000") for c in item]
    return sum(sizes) <= ID_BYTES_MAX


def _put_inbox(db: Any, prefix: str, entries: list[Any]) -> None:
    if entries:
        db.put(prefix + "inbox", entries)
    else:
        db.delete(prefix + "inbox")


def _within(page: int, window: list[int], progress: int) -> bool:
    """Return True if a page is declared; if nothing was done yet, it must be."""
    if window[0] <= page < window[0] + window[1]:
        return True
    if not progress:
        raise Abort(f"moved {page}")
    return False


def _overdue(
    db: Any, prefix: str, ends: Any, lanes: Any, count: int, attempts_max: int
) -> tuple[list[Any], list[Any]]:
    """The claims whose time is up, oldest items first: to be claimed again, and to be given up."""
    found = []
    for place in range(LANES):
        if ends["due"][place] <= db.now:
            for item, entry in _lane(db, prefix, lanes, place).items():
                if entry[0] <= db.now:
                    found.append([entry[2], item, place, entry[1], entry[3]])
    found.sort()
    again = [each[:4] for each in found if each[3] < attempts_max]
    exhausted = [[each[1], each[2], each[4]] for each in found if each[3] >= attempts_max]
    return again[:count], exhausted[:EXHAUSTED_MAX]


def _lane(db: Any, prefix: str, lanes: Any, place: int) -> Any:
    if place not in lanes:
        lanes[place] = db.get(f"{prefix}lane/{place}", {})
    return lanes[place]


def _put_lanes(db: Any, prefix: str, lanes: Any) -> None:
    for place, entries in lanes.items():
        key = f"{prefix}lane/{place}"
        if entries:
            db.put(key, entries)
        else:
            db.delete(key)


def _free(db: Any, prefix: str, lanes: Any, first: int, wanted: int) -> list[int]:
    """Lanes with room, each as often as it has some, from the caller's own one on."""
    places: list[int] = []
    for step in range(LANES):
        if len(places) >= wanted:
            break
        place = (first + step) % LANES
        room = LANE_ITEMS - len(_lane(db, prefix, lanes, place))
        places = places + [place] * max(0, min(room, wanted - len(places)))
    return places


def _held(db: Any, prefix: str, lanes: Any) -> dict[str, bool]:
    """The ids in all lanes."""
    held: dict[str, bool] = {}
    for place in range(LANES):
        for item in _lane(db, prefix, lanes, place):
            held[item] = True
    return held


def _others(held: dict[str, bool], ids: list[str]) -> list[str]:
    """Those ids that nobody holds, each once, and note them as held.

    An id is there twice if its item was cancelled and added again before the first one was claimed.
    """
    found = []
    for item in ids:
        if item not in held:
            held[item] = True
            found.append(item)
    return found


def _fresh(
    db: Any, prefix: str, ends: Any, window: list[int], wanted: int, held: dict[str, bool]
) -> tuple[list[str], int]:
    """Take ids from the pages, then from the inbox; tell its length then (-1: not read)."""
    taken: list[str] = []
    while len(taken) < wanted and ends["paged"]:
        if not _within(ends["head"], window, len(taken)):
            return taken, -1
        key = f"{prefix}page/{ends['head']}"
        page = db.get(key, [])
        part = page[ends["taken"] : ends["taken"] + wanted - len(taken)]
        taken.extend(_others(held, part))
        ends["taken"] += len(part)
        ends["paged"] -= len(part)
        if ends["taken"] >= len(page) and ends["head"] < ends["tail"]:
            db.delete(key)
            ends["head"] += 1
            ends["taken"] = 0
        elif not part:  # an earlier release has lost a page of ids that were all passed over
            ends["paged"] = 0
    if len(taken) == wanted:
        return taken, -1
    inbox = db.get(prefix + "inbox", [])
    rest = inbox
    while rest and len(taken) < wanted:
        ids, rest = _first(rest, wanted - len(taken))
        taken.extend(_others(held, ids))
    if inbox:
        _put_inbox(db, prefix, rest)
    return taken, len(rest)


def _stands(db: Any, prefix: str, lanes: Any, item: str, place: int, token: int) -> bool:
    """Return True if a claim is still the one that its holder knows."""
    entry = _lane(db, prefix, lanes, place).get(item)
    return entry is not None and entry[3] == token


def _give_up(db: Any, prefix: str, lane: Any, item: str) -> None:
    entry = lane.pop(item)
    value = db.get(f"{prefix}item/{item}")
    db.delete(f"{prefix}item/{item}")
    if value is not None:
        dead = {"value": value, "attempts": entry[1], "at": db.now}
        db.put(f"{prefix}dead/{item}", dead)
