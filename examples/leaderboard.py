"""The leaderboard layer: a chess tournament at four boards, where a game is one transaction.

    make up
    python examples/leaderboard.py [URL]

A layer is a library over the client: nothing is deployed. It prints:

    28 games are over: 1. hal (1070), 2. gil (1050), 3. flo (1030)
    the last one is reported again: it counts once
    dan and who is next to him: 4. eve (1010), 5. dan (990), 6. cid (970)
    between 900 and 960: bob (950), ann (930)
    cid gets 20 and is behind dan, who was there first: 5. dan (990), 6. cid (990)
    gil leaves: dan is number 4 of 7
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

from common import clear, connect
from streamydb.client import Builder, CheckFailedError, Client
from streamydb_layers.leaderboard import Leaderboard, Standing

PLAYERS = ["ann", "bob", "cid", "dan", "eve", "flo", "gil", "hal"]
POINTS = 10


def line(standings: list[Standing]) -> str:
    """Return ranks, members and scores."""
    return ", ".join(f"{each.rank}. {each.member} ({each.score})" for each in standings)


def play(board: Leaderboard, loser: str, winner: str) -> None:
    """Move points and keep the game, all of it or nothing; a game is reported once."""

    def keep(txn: Builder) -> None:
        game = f"chess/game/{loser}-{winner}"
        txn.check(game, exists=False).put(game, {"winner": winner})

    board.change(add={winner: POINTS, loser: -POINTS}, also=keep)


def tournament(board: Leaderboard) -> None:
    """Let everybody play everybody, four games at a time; a player is asked for by several."""
    board.change(set=dict.fromkeys(PLAYERS, 1000))
    games = list(combinations(PLAYERS, 2))
    with ThreadPoolExecutor(4) as boards:
        list(boards.map(lambda game: play(board, *game), games))
    print(f"{len(games)} games are over:", line(board.top(3)))
    try:
        play(board, *games[-1])
    except CheckFailedError:
        print("the last one is reported again: it counts once")


def look(board: Leaderboard) -> None:
    """Look up places; each call shows one moment."""
    print("dan and who is next to him:", line(board.around("dan", before=1, after=1)))
    low = ", ".join(f"{each.member} ({each.score})" for each in board.between(900, 960))
    print("between 900 and 960:", low)


def run(db: Client) -> None:
    """Play, look, and change the board once more."""
    board = Leaderboard(db, "chess")
    tournament(board)
    look(board)
    board.add("cid", 20)
    print("cid gets 20 and is behind dan, who was there first:", line(board.standings(5, 2)))
    board.remove("gil")
    dan = board.rank("dan")
    print(f"gil leaves: dan is number {dan.rank if dan else None} of {board.size()}")


def main() -> None:
    """Begin anew, and play."""
    with connect() as db:
        clear(db, "board/chess/")
        clear(db, "chess/")
        run(db)


if __name__ == "__main__":
    main()
