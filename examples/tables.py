"""SQL tables: keys, constraints, and buyers who take the last items at the same time.

    make up
    python examples/tables.py [URL]

The program needs streamydb-layers with its extra `sql`. It prints:

    20 buyers, 8 bought, 12 were told: check stock
    left: lamp 0, chair 0
    sold: chair 3 for 135.00, lamp 5 for 97.50
    dearest up to 50: chair
    a name is taken once: unique customers_name_key
    restocked in one transaction: chair 2, lamp 1
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

from common import clear, connect
from streamydb_layers.tables import ConstraintViolationError, Tables, TablesView

NAME = "example"
TABLES = """
create table items (
    id integer primary key, name text not null, price decimal(10, 2) not null,
    stock integer not null, constraint stock check (stock >= 0)
);
create table customers (id integer primary key, name text unique);
create table orders (
    id integer primary key, item integer not null references items,
    customer integer not null references customers, price decimal(10, 2) not null
);
insert into items values (1, 'lamp', 19.50, 5), (2, 'chair', 45, 3);
insert into customers values (1, 'ann'), (2, 'bob');
"""
BUYERS = range(20)


def buy(shop: Tables, number: int) -> str | None:
    """Take an item and write the order, in one transaction; the constraint that says no."""

    def transaction(view: TablesView) -> None:
        item = 1 + number % 2
        taken = view.sql("update items set stock = stock - 1 where id = ? returning price", [item])
        [[price]] = taken
        view.sql("insert into orders values (?, ?, ?, ?)", [number, item, 1 + number % 2, price])

    try:
        shop.run(transaction)
    except ConstraintViolationError as error:
        return f"{error.kind} {error.constraint}"
    return None


def sell(shop: Tables) -> None:
    """Let the buyers come at the same time."""
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda number: buy(shop, number), BUYERS))
    told = [why for why in said if why is not None]
    print(f"{len(said)} buyers, {said.count(None)} bought, {len(told)} were told: {told[0]}")
    left = shop.sql("select name, stock from items order by id")
    print("left: " + ", ".join(f"{name} {stock}" for name, stock in left))


def look(shop: Tables) -> None:
    """Join, group, and look for the dearest."""
    sold = shop.sql(
        """
        select name, count(*), sum(orders.price) from orders join items on orders.item = items.id
        group by name order by name
        """
    )
    print("sold: " + ", ".join(f"{name} {count} for {total}" for name, count, total in sold))
    dearest = shop.sql("select arg_max(name, price) from items where price <= ?", [Decimal(50)])
    print(f"dearest up to 50: {dearest.rows[0][0]}")


def restock(shop: Tables) -> None:
    """Break a rule; then write several rows, or none."""
    try:
        shop.sql("insert into customers values (3, 'ann')")
    except ConstraintViolationError as error:
        print(f"a name is taken once: {error.kind} {error.constraint}")
    with shop.begin() as several:
        several.sql("update items set stock = stock + 1 where id = 1")
        several.sql("update items set stock = stock + 2 where id = 2")
    stock = shop.sql("select name, stock from items order by name")
    print("restocked in one transaction: " + ", ".join(f"{name} {count}" for name, count in stock))


def main() -> None:
    """Make the tables, sell, look, restock."""
    with connect() as client, Tables(client, NAME) as shop:
        clear(client, f"sql/{NAME}/")
        shop.script(TABLES)
        sell(shop)
        look(shop)
        restock(shop)


if __name__ == "__main__":
    main()
