"""Changes that matter only: a watch by range and by the values before and after, and SQL over REST.

    make up
    python examples/alarms.py [URL]

The program needs nothing but the client; the facade has streamydb-layers[sql]. It prints:

    cellar rose from 12 to 31
    hall rose from 18 to 30
    removed: attic, which had 21
    2 alarms, the highest 31
    cellar was answered: 1 row, 1 alarm left
"""

from __future__ import annotations

from common import clear, connect
from streamydb.client import Client

NAME = "alarms"
SENSORS = {"attic": 20, "cellar": 12, "hall": 18, "yard": 35}
READINGS = [("attic", 21), ("cellar", 31), ("yard", 40), ("cellar", 33), ("hall", 30)]
INSIDE = "sensor/a", "sensor/y"


def measure(client: Client) -> int:
    """Write readings, one after the other; the seq before the first."""
    for name, degrees in SENSORS.items():
        client.put(f"sensor/{name}", degrees)
    begun = client.session.seq
    for name, degrees in READINGS:
        client.put(f"sensor/{name}", degrees)
    client.delete("sensor/attic")
    return begun


def alarms(client: Client, since: int) -> list[tuple[str, int]]:
    """Take the changes that rise to 30 inside the house; the facade sends no others."""
    start, end = INSIDE
    with client.watch(
        since=since, start=start, end=end, where={"ge": 30}, where_before={"lt": 30}
    ) as changes:
        found = [next(changes) for _ in range(2)]
    for change in found:
        name = change.key.removeprefix("sensor/")
        print(f"{name} rose from {change.before} to {change.value}")
    with client.watch(since=since, start=start, end=end, where={"exists": False}) as changes:
        gone = next(changes)
        print(f"removed: {gone.key.removeprefix('sensor/')}, which had {gone.before}")
    return [(change.key.removeprefix("sensor/"), change.value) for change in found]


def keep(client: Client, found: list[tuple[str, int]]) -> None:
    """Keep alarms in a table, by one transaction; then answer one."""
    create = "create table alarms (sensor text primary key, degrees int not null)"
    insert = "insert into alarms values (?, ?)"
    client.sql_transaction([create, *((insert, row) for row in found)], tables=NAME)
    [[count, highest]] = client.sql("select count(*), max(degrees) from alarms", tables=NAME)
    print(f"{count} alarms, the highest {highest}")
    answered, left = client.sql_transaction(
        [("delete from alarms where sensor = ?", ["cellar"]), "select * from alarms"], tables=NAME
    )
    print(f"cellar was answered: {answered.changed} row, {len(left)} alarm left")


def main() -> None:
    """Measure, look at what matters, keep it."""
    with connect() as client:
        clear(client, "sensor/")
        clear(client, f"sql/{NAME}/")
        keep(client, alarms(client, measure(client)))


if __name__ == "__main__":
    main()
