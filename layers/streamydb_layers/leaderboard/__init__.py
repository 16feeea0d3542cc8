"""A leaderboard: members ranked by score, and of equal scores by who arrived there first.

    board = Leaderboard(client, "season")
    board.add("ann", 30)
    board.top(10)
    board.around("ann")

In: scores, integers. Out: members with ranks, at one snapshot. Invariants: ranks are those of the
sorted list of all members at that snapshot; each counter is the number of members below it.
"""

from __future__ import annotations

from streamydb_layers.leaderboard.clients import AsyncLeaderboard, Leaderboard
from streamydb_layers.leaderboard.core import MEMBERS_MAX, STANDINGS_MAX, Standing
from streamydb_layers.leaderboard.ranks import SCORE_MAX

__all__ = [
    "MEMBERS_MAX",
    "SCORE_MAX",
    "STANDINGS_MAX",
    "AsyncLeaderboard",
    "Leaderboard",
    "Standing",
]
