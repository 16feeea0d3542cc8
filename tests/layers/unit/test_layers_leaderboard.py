"""Leaderboards: every rank is that of the sorted list, and the counters are the members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamydb.client import BoundViolatedError, CheckFailedError
from streamydb.testing.clients import MemoryHost
from streamydb_layers.drivers import drive
from streamydb_layers.errors import InvalidArgumentError
from streamydb_layers.leaderboard import SCORE_MAX, Leaderboard, Standing
from streamydb_layers.leaderboard import core as board_core
from streamydb_layers.leaderboard.ranks import BUCKET_ARRIVALS, beginnings, path_of, score_of
from tests.support.layers import DRIVERS, QUICK, interrupted, layer, together


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        yield running


@pytest.fixture(params=DRIVERS)
def board(host: MemoryHost, request: pytest.FixtureRequest) -> Any:
    return layer(host, request.param, "board", "season")


def assert_counted(host: MemoryHost) -> None:
    """Members, their places and all counters agree, at one snapshot."""
    with host.connect() as client:
        kept = {e.key.removeprefix("board/season/"): e.value for e in client.scan("board/season/")}
    members = {k.removeprefix("member/"): v for k, v in kept.items() if k.startswith("member/")}
    places = {f"at/{path_of(*stored)}/{member}" for member, stored in members.items()}
    assert {key for key in kept if key.startswith("at/")} == places
    counts = Counter(each for stored in members.values() for each in beginnings(path_of(*stored)))
    shown = {k.removeprefix("count/"): v for k, v in kept.items() if k.startswith("count/") and v}
    assert shown == dict(counts)


def assert_listed(host: MemoryHost) -> None:
    """Of each score there are lists for buckets with members, and perhaps for the last bucket."""
    with host.connect() as client:
        kept = {e.key.removeprefix("board/season/"): e.value for e in client.scan("board/season/")}
    lists = {key.removeprefix("order/") for key in kept if key.startswith("order/")}
    filled = {key.split("/")[1] for key in kept if key.startswith("at/")}
    size = vars(board_core)["BUCKET_ARRIVALS"]
    last = {
        path_of(score_of(key.removeprefix("arrivals/")), (value - 1) // size)
        for key, value in kept.items() if key.startswith("arrivals/")
    }  # fmt: skip
    assert filled <= lists <= filled | last


def test_members_are_ranked_by_score_and_then_by_arrival(board: Any) -> None:
    assert board.top() == []
    assert [board.add("ann", 5), board.add("bob", 9), board.add("eve", 5)] == [5, 9, 5]
    expected = [Standing("bob", 9, 1), Standing("ann", 5, 2), Standing("eve", 5, 3)]
    assert board.top() == expected
    assert [board.rank(standing.member) for standing in expected] == expected
    board.set("ann", 5)
    assert board.top() == expected
    board.set("ann", 6)
    board.add("ann", -1)
    assert board.top() == [expected[0], Standing("eve", 5, 2), Standing("ann", 5, 3)]
    assert board.around("eve", 1, 0) == [expected[0], Standing("eve", 5, 2)]
    assert board.between(5, 8) == [Standing("eve", 5, 2), Standing("ann", 5, 3)]
    assert board.standings(3, 5) == [Standing("ann", 5, 3)]
    board.remove("bob", "nobody")
    assert (board.size(), board.rank("bob"), board.around("bob")) == (2, None, [])
    assert board.rank("eve") == Standing("eve", 5, 1)


def test_several_members_change_at_one_instant(host: MemoryHost, board: Any) -> None:
    scores = board.change(add={"a": 1, "b": -1}, set={"c": 1}, remove=["d"])
    assert scores == {"a": 1, "b": -1, "c": 1, "d": None}
    assert [standing.member for standing in board.top()] == ["a", "c", "b"]
    with pytest.raises(InvalidArgumentError):
        board.change(add={"a": 1}, set={"a": 1})
    with pytest.raises(InvalidArgumentError):
        board.change(add={str(number): 1 for number in range(101)})
    for wrong in (SCORE_MAX + 1, 1.5, True):
        with pytest.raises(InvalidArgumentError):
            board.set("a", wrong)
    board.change(set={"ab": 1})
    board.change(remove="ab")
    assert (board.rank("ab"), board.size()) == (None, 3)
    board.set("a", SCORE_MAX)
    board.set("b", -SCORE_MAX)
    assert [standing.score for standing in board.top()] == [SCORE_MAX, 1, -SCORE_MAX]
    with pytest.raises(InvalidArgumentError):
        board.add("a", 1)
    assert_counted(host)


def test_other_writes_are_part_of_the_transaction(host: MemoryHost) -> None:
    with host.connect() as client:
        board = Leaderboard(client, "season")
        client.put("lives", 1)
        board.add("ann", 10, also=lambda txn: txn.add("lives", -1, min=0))
        with pytest.raises(BoundViolatedError):
            board.add("ann", 10, also=lambda txn: txn.add("lives", -1, min=0))
        with pytest.raises(CheckFailedError):
            board.set("ann", 0, also=lambda txn: txn.check("lives", eq=7))
        assert (client.get("lives"), board.rank("ann")) == (0, Standing("ann", 10, 1))


class Sorted:
    """A board as a list."""

    def __init__(self) -> None:
        self.scores: dict[str, tuple[int, int]] = {}
        self.clock = 0

    def set(self, member: str, score: int) -> None:
        self.clock += 1
        if self.scores.get(member, (None, 0))[0] != score:
            self.scores[member] = (score, self.clock)

    def standings(self) -> list[Standing]:
        order = sorted(self.scores.items(), key=lambda item: (-item[1][0], item[1][1]))
        return [Standing(member, s, rank) for rank, (member, (s, _)) in enumerate(order, 1)]


Actions = list[tuple[str, str, int]]

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "set", "set", "remove", "tidy", "move"]),
        st.sampled_from("abcdefg"),
        st.integers(-1, 1) | st.integers(-3, 3) | st.sampled_from([1000, 31, 32, -SCORE_MAX // 2]),
    ),
    min_size=1, max_size=25,
)  # fmt: skip

BEGINNINGS: st.SearchStrategy[Actions] = st.just([]) | st.permutations("abcdefg").map(
    lambda members: [*(("set", member, 1) for member in members), ("move", "", 20)]
)
"""Nobody is there; or all have the same score, in a database that was made from a snapshot."""


def moved(old: MemoryHost, new: MemoryHost, rows: int) -> MemoryHost:
    """The new database has the values of the old one, put as from a snapshot: in order of keys."""
    with old.connect() as before, new.connect("direct") as client:
        entries = list(before.scan("board/"))
        for first in range(0, len(entries), rows):
            atomic = client.atomic()
            for entry in entries[first : first + rows]:
                atomic.put(entry.key, entry.value)
            atomic.commit()
    return new


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(ACTIONS, st.sampled_from([1, 2, 3, BUCKET_ARRIVALS]), BEGINNINGS)
def test_ranks_are_those_of_the_sorted_list(actions: Actions, bucket: int, first: Actions) -> None:
    with ExitStack() as hosts, pytest.MonkeyPatch.context() as patched:
        host = hosts.enter_context(MemoryHost())
        patched.setattr(board_core, "BUCKET_ARRIVALS", bucket)
        board, model = Leaderboard(host.connect("direct"), "season"), Sorted()
        for action, member, number in [*first, *actions]:
            if action == "move":
                host = moved(host, hosts.enter_context(MemoryHost()), rows=2 + abs(number))
                board = Leaderboard(host.connect("direct"), "season")
            elif action == "remove":
                board.remove(member)
                model.scores.pop(member, None)
            elif action == "tidy":
                board.tidy()
            elif action == "set":
                board.set(member, number)
                model.set(member, number)
            else:
                score = model.scores.get(member, (0, 0))[0] + number
                if abs(score) <= SCORE_MAX:
                    assert board.add(member, number) == score
                    model.set(member, score)
        expected = model.standings()
        assert board.top(50) == expected
        assert board.size() == len(expected)
        for place, standing in enumerate(expected):
            assert board.rank(standing.member) == standing
            around = expected[max(0, place - 1) : place + 3]
            assert board.around(standing.member, 1, 2) == around
            assert board.standings(place + 1, 2) == expected[place : place + 2]
            within = [each for each in expected if each.score <= standing.score]
            assert board.between(-SCORE_MAX, standing.score) == within
        assert_counted(host)
        assert_listed(host)


def test_lists_of_those_who_arrived_do_not_pile_up(
    host: MemoryHost, board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_core, "BUCKET_ARRIVALS", 2)
    board.set("eve", 5)
    for turn in range(30):
        board.change(set={"ann": 5 + turn % 2, "bob": 5 + turn % 3})
        assert_listed(host)
    assert_counted(host)


def test_buckets_follow_each_other_in_the_order_of_arrival(host: MemoryHost, board: Any) -> None:
    members = [f"{number % 7}-{number}" for number in range(BUCKET_ARRIVALS + 60)]
    for first in range(0, len(members), 50):
        board.change(set=dict.fromkeys(members[first : first + 50], 7))
    assert [standing.member for standing in board.top(len(members))] == members
    assert board.rank(members[-1]) == Standing(members[-1], 7, len(members))
    assert [s.member for s in board.around(members[257], 3, 3)] == members[254:261]
    assert [s.rank for s in board.standings(250, 20)] == list(range(250, 270))
    assert_counted(host)


def test_equal_scores_keep_their_order_in_a_database_that_is_made_from_a_snapshot(
    host: MemoryHost, board: Any
) -> None:
    """Those who arrived under a release that kept no list stand before those who came later."""
    for member in ("old", "eve", "bob"):
        board.set(member, 7)
    board.change(set={"zoe": 7, "ann": 7})
    board.remove("bob")
    board.set("bob", 7)
    names = ["old", "eve", "zoe", "ann", "bob"]
    with host.connect() as client:
        path = path_of(7, 0)
        order = client.get(f"board/season/order/{path}")
        assert order == [["old"], ["eve"], ["bob"], ["zoe", "ann"], ["bob"]]
        client.put(f"board/season/order/{path}", order[1:])
        assert [standing.member for standing in board.top()] == names
    with MemoryHost() as other, moved(host, other, 3).connect() as client:
        restored = Leaderboard(client, "season")
        restored.set("cat", 7)
        assert [standing.member for standing in restored.top()] == [*names, "cat"]
        assert [restored.rank(name) for name in names] == restored.top(5)


def test_who_arrives_later_is_never_put_into_an_earlier_bucket(
    host: MemoryHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_core, "BUCKET_ARRIVALS", 1)
    with host.connect() as client:
        board = Leaderboard(client, "season")
        late = board.core.set("late", 5)
        drive(client, interrupted(late, 2, lambda: board.set("early", 5)))
        assert board.top() == [Standing("early", 5, 1), Standing("late", 5, 2)]
        paths = [entry.key.split("/")[3] for entry in client.scan("board/season/at/")]
        assert len(set(paths)) == 2
    assert_counted(host)


def test_many_change_the_same_and_other_members(host: MemoryHost) -> None:
    each, threads = 12, 5

    def play(number: int) -> None:
        board = Leaderboard(host.connect(options=QUICK), "season")
        for turn in range(each):
            board.add("shared" if turn % 3 == 0 else f"p{number}", 1)
            board.set(f"q{turn}", number)

    together(partial(play, number) for number in range(threads))
    with host.connect() as client:
        board = Leaderboard(client, "season")
        scores = {standing.member: standing.score for standing in board.top(100)}
        assert scores["shared"] == threads * each // 3
        assert {scores[f"p{number}"] for number in range(threads)} == {each - each // 3}
        assert board.size() == len(scores) == 1 + threads + each
    assert_counted(host)


def test_nothing_is_left_behind_once_tidied(host: MemoryHost, board: Any) -> None:
    for score in range(30):
        board.set("ann", score)
    assert board.tidy() > 0
    assert board.tidy() == 0
    assert_counted(host)
    board.remove("ann")
    board.tidy()
    assert list(host.connect().scan("board/season/")) == []
    board.set("bob", 1)
    assert board.top() == [Standing("bob", 1, 1)]


def test_paths_give_scores_back() -> None:
    for score in (0, 1, -1, SCORE_MAX, -SCORE_MAX):
        assert score_of(path_of(score, 3)) == score
    with pytest.raises(InvalidArgumentError):
        path_of(0, 32**4)
