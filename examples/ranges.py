"""Ranges in transactions: whoever decides by all keys of a range, decides by what is true.

    make up
    python examples/ranges.py [URL]

The procedure is in modules/rota.py. Run this where the pipeline runs. It prints:

    a doctor signs on while a report is written: a report of 2 is refused, the range has 3 keys
    the report that was made by run(): 3 doctors on monday
    three doctors call in sick at once: 2 may, and 1 stays
    a procedure, three at once on tuesday: 2 went home, 1 heard "somebody has to stay"
    eight bookings of a room with 3 beds: 3 are made: bed 1, bed 2, bed 3
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common import MODULES, clear, connect, deploy, folder
from streamydb.client import CheckFailedError, Client, ProcedureAbortedError, Range

DOCTORS = ("ann", "bob", "cid")


def checks(db: Client) -> None:
    """Check that a range is as it was seen: this many keys, and none of a later version."""
    monday = Range(prefix="rota/monday/")
    db.atomic().put("rota/monday/ann", "day").put("rota/monday/bob", "night").commit()
    seen = db.atomic().read(monday).commit()
    db.put("rota/monday/cid", "day")
    count = len(seen.ranges[monday])
    report = db.atomic().check(monday, count=count, version_le=seen.seq).put("rota-report", count)
    try:
        report.commit()
    except CheckFailedError as error:
        now = error.failed[0].count
        print("a doctor signs on while a report is written: ", end="")
        print(f"a report of {count} is refused, the range has {now} keys")


def functions(db: Client) -> None:
    """Scan and write in a function: what was scanned becomes checks of ranges."""

    def report(view: Any) -> int:
        count = len(list(view.scan("rota/monday/")))
        view.put("rota-report", count)
        return count

    print(f"the report that was made by run(): {db.run(report)} doctors on monday")

    def sick(doctor: str) -> bool:
        def leave(view: Any) -> bool:
            if len(list(view.scan("rota/monday/"))) < 2:
                return False
            view.delete(f"rota/monday/{doctor}")
            return True

        return db.run(leave)

    with ThreadPoolExecutor(3) as phones:
        gone = sum(phones.map(sick, DOCTORS))
    stay = len(list(db.scan("rota/monday/")))
    print(f"three doctors call in sick at once: {gone} may, and {stay} stays")


def procedures(db: Client) -> None:
    """Call a procedure that scans; its key function names the range."""
    signing = db.atomic()
    for doctor in DOCTORS:
        signing.put(f"rota/tuesday/{doctor}", "day")
    signing.commit()

    def go_home(doctor: str) -> str | None:
        try:
            db.call("rota.go_home", day="tuesday", doctor=doctor)
        except ProcedureAbortedError as error:
            return error.reason
        return None

    with ThreadPoolExecutor(3) as phones:
        told = list(phones.map(go_home, DOCTORS))
    (heard,) = (reason for reason in told if reason is not None)
    gone = told.count(None)
    print(f'a procedure, three at once on tuesday: {gone} went home, 1 heard "{heard}"')


def bounds(db: Client) -> None:
    """Make a key only if its range has room: eight clients want one of three beds."""
    room = Range(prefix="rota-bed/")

    def book(_: int) -> bool:
        for number in range(1, 9):
            bed = db.atomic().check(room, count_le=2).check(f"rota-bed/{number}", exists=False)
            try:
                bed.put(f"rota-bed/{number}", "taken").commit()
            except CheckFailedError as error:
                if any(failed.check == "range" for failed in error.failed):
                    return False
            else:
                return True
        return False

    with ThreadPoolExecutor(8) as clients:
        made = sum(clients.map(book, range(8)))
    beds = ", ".join(f"bed {entry.key.rpartition('/')[2]}" for entry in db.scan("rota-bed/"))
    print(f"eight bookings of a room with 3 beds: {made} are made: {beds}")


def main() -> None:
    """Go through it."""
    with connect(folder()) as db:
        clear(db, "rota")
        deploy(db, MODULES / "rota.py")
        checks(db)
        functions(db)
        procedures(db)
        bounds(db)


if __name__ == "__main__":
    main()
