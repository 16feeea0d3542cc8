"""Leaderboards for both clients: they run the core's flows."""

from __future__ import annotations

from streamydb.client import AsyncClient, Client
from streamydb_layers.drivers import awaiting, blocking
from streamydb_layers.leaderboard.core import BoardCore


class Leaderboard:
    """A leaderboard, on a blocking client; threads may share it."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.core = BoardCore(name)

    add = blocking(BoardCore.add)
    set = blocking(BoardCore.set)
    remove = blocking(BoardCore.remove)
    change = blocking(BoardCore.change)
    top = blocking(BoardCore.top)
    standings = blocking(BoardCore.standings)
    rank = blocking(BoardCore.rank)
    around = blocking(BoardCore.around)
    between = blocking(BoardCore.between)
    size = blocking(BoardCore.size)
    tidy = blocking(BoardCore.tidy)


class AsyncLeaderboard:
    """A leaderboard, on a client for coroutines; see `Leaderboard`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.core = BoardCore(name)

    add = awaiting(BoardCore.add)
    set = awaiting(BoardCore.set)
    remove = awaiting(BoardCore.remove)
    change = awaiting(BoardCore.change)
    top = awaiting(BoardCore.top)
    standings = awaiting(BoardCore.standings)
    rank = awaiting(BoardCore.rank)
    around = awaiting(BoardCore.around)
    between = awaiting(BoardCore.between)
    size = awaiting(BoardCore.size)
    tidy = awaiting(BoardCore.tidy)
