"""The rules of the tutorial's shop, on a database in memory: what holds after whatever happens."""

from __future__ import annotations

import random
import runpy
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.client import Client, IdReusedError
from streamydb.testing.clients import MemoryHost
from tests.support.tutorial import EXAMPLE

shop: Any = SimpleNamespace(**runpy.run_path(str(EXAMPLE / "shop.py")))
NAMES = ["ann", "bob", "cleo", "dan"]


@pytest.fixture
def db() -> Iterator[Client]:
    with MemoryHost() as host, host.connect() as client:
        shop.open_shop(client)
        yield client


def state(db: Client) -> dict[str, Any]:
    return {entry.key.removeprefix("shop/"): entry.value for entry in db.scan("shop/")}


def assert_sound(db: Client, deposited: int) -> None:
    """Every seat and every coin is somewhere, and nobody waits while there are seats."""
    now = state(db)
    tickets = [key for key in now if key.startswith("ticket/")]
    accounts = [value for key, value in now.items() if key.startswith("account/")]
    assert now["left"] == len(shop.SEATS) - len(tickets) == len(shop.free_seats(db))
    assert now["takings"] == shop.PRICE * len(tickets)
    assert now["held"] == shop.PRICE * len(now["waiting"])
    assert sum(accounts) + now["takings"] + now["held"] == deposited
    assert min(accounts, default=0) >= 0
    assert not (now["waiting"] and now["left"])


@pytest.mark.parametrize("seed", range(3))
def test_whatever_customers_do_the_shop_is_sound(db: Client, seed: int) -> None:
    chance, heirs, refused = random.Random(seed), [], set()
    deposited = 22 * shop.PRICE
    shop.deposit(db, "ann", deposited)
    for seat in shop.SEATS[2:]:
        shop.buy(db, "ann", seat)
    for _ in range(120):
        name, seat = chance.choice(NAMES), chance.choice(shop.SEATS)
        line = db.get("shop/waiting")
        try:
            act = chance.randrange(8)
            if act == 0:
                shop.deposit(db, name, 240)
                deposited += 240
            elif act < 5:
                shop.buy(db, name, chance.choice([seat, *shop.free_seats(db)]))
            elif act < 7:
                shop.wait(db, name)
            else:
                holder = db.get(f"shop/ticket/{seat}", name) if chance.random() < 0.8 else name
                heir = shop.give_back(db, holder, seat)
                assert heir == (line[0] if line else None)
                heirs.append(heir)
        except shop.ShopError as error:
            refused.add(str(error).split()[-1])
        assert_sound(db, deposited)
    assert refused >= {"taken.", "seats."}
    assert set(heirs) & set(NAMES)


def test_the_line_is_served_in_its_order(db: Client) -> None:
    shop.deposit(db, "ann", 24 * shop.PRICE)
    for seat in shop.SEATS:
        shop.buy(db, "ann", seat)
    line = ["cleo", "bob", "cleo", "dan"]
    for name in line:
        shop.deposit(db, name, shop.PRICE)
        shop.wait(db, name)
    heirs = [shop.give_back(db, "ann", seat) for seat in shop.SEATS[:6]]
    assert heirs == [*line, None, None]
    assert db.get("shop/account/ann") == 6 * shop.PRICE
    assert_sound(db, 28 * shop.PRICE)


def test_there_is_no_other_seat(db: Client) -> None:
    with pytest.raises(shop.ShopError, match="There is no seat Z9"):
        shop.buy(db, "ann", "Z9")


def test_an_order_is_executed_once_however_often_it_is_sent(db: Client) -> None:
    for _ in range(3):
        shop.deposit(db, "ann", 100, "gift")
        shop.buy(db, "ann", "A1", "click")
    assert (db.get("shop/account/ann"), db.get("shop/left")) == (70, 23)
    with pytest.raises(IdReusedError):
        shop.buy(db, "ann", "A2", "click")


def test_many_buy_the_same_seat_and_one_has_it(db: Client) -> None:
    happy: list[str] = []
    ready = threading.Barrier(8)

    def want(name: str) -> None:
        shop.deposit(db, name, 100)
        ready.wait(60)
        try:
            shop.buy(db, name, "A1")
        except shop.ShopError:
            return
        happy.append(name)

    threads = [threading.Thread(target=want, args=(f"guest{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert happy == [db.get("shop/ticket/A1")]
    assert_sound(db, 800)
