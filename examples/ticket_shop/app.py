"""The shop on the web: a page, what its buttons do, and a stream of what happens."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import uvicorn
from litestar import Litestar, MediaType, Request, Response, get, post
from litestar.response import ServerSentEvent

import shop
import streamydb
from streamydb.client import ClientError

PORT = int(os.environ.get("SHOP_PORT", "8000"))
PAGE = Path(__file__).with_name("page.html")

db = streamydb.connect(shop.DATABASE)
feed = streamydb.connect_async(shop.DATABASE)


class Wish(msgspec.Struct):
    """What a button sends: who wants which seat, and the number of this click."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    seat: str = ""
    order: str | None = None


@get("/", media_type=MediaType.HTML, sync_to_thread=False)
def page() -> str:
    """Show the page."""
    return PAGE.read_text("utf-8")


@post("/deposit", sync_to_thread=True)
def deposit(data: Wish) -> None:
    """Put 100 into an account."""
    shop.deposit(db, data.name, 100, data.order)


@post("/buy", sync_to_thread=True)
def buy(data: Wish) -> None:
    """Sell a seat."""
    shop.buy(db, data.name, data.seat, data.order)


@post("/wait", sync_to_thread=True)
def wait(data: Wish) -> None:
    """Join the waiting list."""
    shop.wait(db, data.name, data.order)


@post("/give-back", sync_to_thread=True)
def give_back(data: Wish) -> None:
    """Take a ticket back."""
    shop.give_back(db, data.name, data.seat)


@get("/live", sync_to_thread=False)
def live() -> ServerSentEvent:
    """Stream the shop."""
    return ServerSentEvent(news())


async def news() -> AsyncGenerator[str, None]:
    """Yield all keys of the shop at one moment, then those of each transaction after it."""
    moment = (await feed.read([])).seq
    state = {entry.key: entry.value async for entry in feed.scan("shop/", at=moment)}
    yield as_json(state)
    async with feed.watch("shop/", since=moment) as changes:
        written: dict[str, Any] = {}
        async for change in changes:
            written[change.key] = change.value
            if (changes.seq or 0) >= change.seq:  # that was the transaction's last change
                yield as_json(written)
                written = {}


def as_json(keys: dict[str, Any]) -> str:
    """Return keys and values as JSON; null: the key is gone."""
    return msgspec.json.encode(keys).decode()


def refuse(_: Request[Any, Any, Any], error: shop.ShopError) -> Response[dict[str, str]]:
    """Tell the customer why not."""
    return Response({"detail": str(error)}, status_code=409)


def ask_again(_: Request[Any, Any, Any], error: ClientError) -> Response[dict[str, str]]:
    """Have the page send the same order again."""
    return Response({"detail": str(error)}, status_code=503)


app = Litestar(
    [page, deposit, buy, wait, give_back, live],
    exception_handlers={shop.ShopError: refuse, ClientError: ask_again},
    on_shutdown=[feed.close, db.close],
    logging_config=None,
)

if __name__ == "__main__":
    print(f"The shop is open: http://127.0.0.1:{PORT}")
    uvicorn.run(app, port=PORT, log_level="warning", timeout_graceful_shutdown=1)
