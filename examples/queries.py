"""SQL over snapshots: now, at a past seq, and while others write.

    make up
    python examples/queries.py [URL]

The facade needs DuckDB (the extra `sql`). It prints:

    asked ... times during the rides; counters and bikes agreed: True
    airport: 4 bikes, of which 09 went 40 km
    castle: 5 bikes, of which 08 went 27 km
    harbour: 3 bikes, of which 07 went 16 km
    since the morning: airport +0, castle +1, harbour -1
    more than 25 km: 08, 09, 12
    the morning is as it was: True
    a query only reads: Send one SELECT.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

from common import clear, connect
from streamydb.client import Client, QueryInvalidError, Table

STATIONS = ["airport", "castle", "harbour"]
BIKES = range(1, 13)

BIKE = """
    with bike as (
      select key[-2:] as name, value->>'station' as station, (value->>'km')::int as km
      from kv where key >= 'rental/bike/' and key < 'rental/bike0'
    )
"""
BOARD = f"""
    {BIKE} select station, count(*), arg_max(name, km), max(km)
    from bike group by station order by station
"""
LONGER = f"{BIKE} select name from bike where km > $1 order by name"
AGREE = f"""
    {BIKE} select bool_and(value::int = (select count(*) from bike where station = key[11:]))
    from kv where key >= 'rental/at/' and key < 'rental/at0'
"""


def open_rental(db: Client) -> None:
    """Put four bikes at each station, in one transaction."""
    opening = db.atomic()
    for bike in BIKES:
        station = STATIONS[(bike - 1) % 3]
        opening.put(f"rental/bike/{bike:02}", {"station": station, "km": 0})
    for station in STATIONS:
        opening.put(f"rental/at/{station}", len(BIKES) // 3)
    opening.commit()


def ride(db: Client, bike: int, number: int) -> None:
    """Ride to the next station: the bike and two counters change, or nothing does."""
    here, there = (STATIONS[(bike - 1 + number + step) % 3] for step in (0, 1))
    now = {"station": there, "km": (number + 1) * (bike + 1)}
    moved = db.atomic().put(f"rental/bike/{bike:02}", now)
    moved.add(f"rental/at/{here}", -1).add(f"rental/at/{there}", 1).commit()


def ask_while_they_ride(db: Client) -> None:
    """Compare counters with bikes all the time: each answer is of one moment."""
    answers: list[bool] = []
    with ThreadPoolExecutor(4) as riders:
        for number in range(4):
            off = [bike for bike in BIKES if bike % 5 > number]
            rides = [riders.submit(ride, db, bike, number) for bike in off]
            while wait(rides, timeout=0).not_done:
                answers += db.query(AGREE, prefix="rental/").rows[0]
            for each in rides:
                each.result()
    print(f"asked {len(answers)} times during the rides; counters and bikes agreed: {all(answers)}")


def show(db: Client, then: Table) -> None:
    """Print the evening beside the morning."""
    now = db.query(BOARD, prefix="rental/")
    for station, bikes, longest, km in now:
        print(f"{station}: {bikes} bikes, of which {longest} went {km} km")
    pairs = zip(now, then, strict=True)
    print("since the morning:", ", ".join(f"{new[0]} {new[1] - old[1]:+}" for new, old in pairs))
    print("more than 25 km:", ", ".join(name for (name,) in db.query(LONGER, [25])))
    print("the morning is as it was:", db.query(BOARD, prefix="rental/", at=then.seq) == then)


def main() -> None:
    """Spend a day at a bike rental."""
    with connect() as db:
        clear(db, "rental/")
        open_rental(db)
        morning = db.query(BOARD, prefix="rental/")
        ask_while_they_ride(db)
        show(db, morning)
        try:
            db.query("copy kv to 'bikes.csv'")
        except QueryInvalidError as error:
            print("a query only reads:", error.members["error"])


if __name__ == "__main__":
    main()
