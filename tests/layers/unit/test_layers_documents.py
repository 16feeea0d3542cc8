"""Collections: documents and their indexes are one thing, whoever writes and whatever is built."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamydb.client import AsyncView, InvalidJsonError, SnapshotGoneError, View
from streamydb.testing.clients import MemoryHost
from streamydb_layers.documents import AsyncCollection, Collection, building
from streamydb_layers.documents.building import IndexedCore
from streamydb_layers.documents.indexes import CollectionIndexes
from streamydb_layers.drivers import drive
from streamydb_layers.errors import (
    DocumentNotFoundError,
    DuplicateIdError,
    IndexNotReadyError,
    IndexValueTooLongError,
    InvalidArgumentError,
    InvalidNameError,
    LayerError,
    UniqueViolationError,
    UpdateError,
)
from tests.support.layers import DRIVERS, QUICK, cut_off, interrupted, layer, together


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        yield running


@pytest.fixture(params=DRIVERS)
def users(host: MemoryHost, request: pytest.FixtureRequest) -> Any:
    return layer(host, request.param, "collection", "users")


def names(page: Any) -> list[str]:
    return [found.data["name"] for found in page.documents]


def assert_indexed(host: MemoryHost, name: str = "users") -> None:
    """Every index has the entries that the documents say, at one snapshot, and no others."""
    with host.connect() as client:
        core = IndexedCore(name)
        stored = {entry.key: entry.value for entry in client.scan(core.prefix)}
    schema = CollectionIndexes.of(stored.pop(core.schema_key, None))
    documents = {k: v for k, v in stored.items() if k.startswith(core.prefix + "data/")}
    expected = {}
    for index in schema.indexes.values():
        for key, document in documents.items():
            named = key.removeprefix(core.prefix + "data/")
            entry = index.key(core.prefix, named, document)
            assert entry not in expected
            if entry is not None:
                expected[entry] = named
    assert {k: v for k, v in stored.items() if k not in documents} == expected


def test_documents_come_and_change_and_go(users: Any) -> None:
    ann = users.insert({"name": "Ann", "tags": []})
    assert users.insert({"name": "Bob"}, document_id="bob") == "bob"
    with pytest.raises(DuplicateIdError, match="bob"):
        users.insert({"name": "Eve"}, document_id="bob")
    found = users.get(ann)
    assert (found.id, found.data, found.version) == (ann, {"name": "Ann", "tags": []}, 1)
    assert users.patch(ann, {"age": 30, "tags": None}) == {"name": "Ann", "age": 30}
    assert users.update(ann, inc={"age": 1}, push={"tags": "x"}, set={"home.city": "Bonn"}) == {
        "name": "Ann", "age": 31, "tags": ["x"], "home": {"city": "Bonn"},
    }  # fmt: skip
    assert users.modify(ann, lambda user: {**user, "age": user["age"] * 2})["age"] == 62
    users.replace("bob", {"name": "Bob", "age": 1})
    users.put("eve", {"name": "Eve"})
    assert names(users.find()) == ["Ann", "Bob", "Eve"]
    assert users.delete("eve")
    assert not users.delete("eve")
    assert users.get("eve") is None
    assert users.get("eve", at=users.get(ann).version + 2) is not None
    for missing in (users.patch, users.replace):
        with pytest.raises(DocumentNotFoundError, match="eve"):
            missing("eve", {})
    with pytest.raises(UpdateError):
        users.update(ann, inc={"name": 1})
    with pytest.raises(UpdateError):
        users.insert([1])
    with pytest.raises(InvalidJsonError):
        users.insert({"n": 2**64})
    with pytest.raises(InvalidNameError):
        users.get("")


def test_an_index_orders_bounds_and_pages(host: MemoryHost, users: Any) -> None:
    for number in range(6):
        users.put(f"u{number}", {"name": f"n{number}", "city": "BA"[number % 2], "age": number})
    users.put("odd", {"name": "odd", "city": ["A"], "age": 1})
    assert users.create_index("by_city", ["city", "-age"])
    assert not users.create_index("by_city", ["city", "-age"])
    assert users.create_index("by_name", ["name"], unique=True)
    assert names(users.find("by_city")) == ["n5", "n3", "n1", "n4", "n2", "n0"]
    assert names(users.find("by_city", equals=["B"], ge=2)) == ["n4", "n2"]
    assert names(users.find("by_city", equals=["A", 3])) == ["n3"]
    assert names(users.find("by_name", gt="n1", le="n4")) == ["n2", "n3", "n4"]
    assert names(users.find("by_name", prefix="o")) == ["odd"]
    page = users.find("by_city", limit=2)
    users.put("u9", {"name": "n9", "city": "A", "age": 4})
    users.delete("u1")
    shown = names(page)
    while page.cursor is not None:
        page = users.find("by_city", limit=2, cursor=page.cursor)
        shown += names(page)
    assert shown == ["n5", "n3", "n1", "n4", "n2", "n0"]
    assert_indexed(host)


def test_a_cursor_is_of_one_query_and_one_snapshot(host: MemoryHost, users: Any) -> None:
    users.create_index("by_age", ["age"])
    for number in range(4):
        users.insert({"name": "x", "age": number})
    cursor = users.find("by_age", limit=1).cursor
    for other in ({"index": "by_age", "ge": 2}, {}):
        with pytest.raises(InvalidArgumentError, match="another query"):
            users.find(**other, cursor=cursor)
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    for wrong in ("", "x", "bnVsbA==", "WzEsMl0=", "WyJhIiwiYiJd", deep):
        with pytest.raises(InvalidArgumentError, match="no cursor"):
            users.find("by_age", cursor=wrong)
    users.insert({"name": "y", "age": 9})
    host.do(lambda: setattr(host.database.model, "gone", 7))
    with pytest.raises(SnapshotGoneError):
        users.find("by_age", limit=1, cursor=cursor)
    with pytest.raises(IndexNotReadyError, match="by_nothing"):
        users.find("by_nothing")
    with pytest.raises(InvalidArgumentError):
        users.find(ge=1)


def test_a_text_is_not_taken_for_a_list(users: Any) -> None:
    """It would be one of its characters."""
    with pytest.raises(InvalidArgumentError, match=r"\['name'\]"):
        users.create_index("by_name", "name")
    assert users.indexes() == {}
    users.create_index("by_name", ["name", "a", "b", "c"])
    with pytest.raises(InvalidArgumentError, match=r"\['Anna'\]"):
        users.find("by_name", equals="Anna")


def test_a_unique_index_has_each_value_once(host: MemoryHost, users: Any) -> None:
    users.create_index("by_mail", ["mail"], unique=True)
    users.put("ann", {"mail": "a"})
    users.put("ann", {"mail": "a", "n": 1})
    users.put("bob", {"mail": "b"})
    users.put("none", {})
    users.put("more", {})
    with pytest.raises(UniqueViolationError, match=r"'ann'.*by_mail"):
        users.insert({"mail": "a"})
    with pytest.raises(UniqueViolationError):
        users.patch("bob", {"mail": "a"})
    users.delete("ann")
    users.patch("bob", {"mail": "a"})
    users.insert({"mail": "b"})
    with pytest.raises(IndexValueTooLongError):
        users.insert({"mail": "x" * 480})
    assert_indexed(host)


def test_an_index_that_cannot_be_is_dropped_again(host: MemoryHost, users: Any) -> None:
    users.put("ann", {"mail": "a"})
    users.put("bob", {"mail": "a"})
    with pytest.raises(UniqueViolationError):
        users.create_index("by_mail", ["mail"], unique=True)
    users.put("long", {"mail": "x" * 480})
    with pytest.raises(IndexValueTooLongError):
        users.create_index("by_mail", ["mail"])
    assert users.indexes() == {}
    assert_indexed(host)
    users.delete("long")
    users.create_index("by_mail", ["mail"])
    with pytest.raises(InvalidArgumentError, match="by_mail"):
        users.create_index("by_mail", ["mail"], unique=True)
    assert users.indexes()["by_mail"] == {"fields": ["mail"], "unique": False, "ready": True}
    assert users.drop_index("by_mail")
    assert not users.drop_index("by_mail")
    assert_indexed(host)


def test_several_documents_are_one_transaction(host: MemoryHost) -> None:
    with host.connect() as client:
        users, orders = Collection(client, "users"), Collection(client, "orders")
        orders.create_index("by_user", ["user"])
        users.put("ann", {"money": 10})

        def order(view: View, price: int) -> str:
            left = users.within(view).update("ann", inc={"money": -price})["money"]
            made = orders.within(view).insert({"user": "ann", "price": price})
            if left < 0:
                raise ValueError("not enough")
            return made

        made = client.run(lambda view: order(view, 7))
        with pytest.raises(ValueError, match="not enough"):
            client.run(lambda view: order(view, 7))
        assert [found.id for found in orders.find("by_user", equals=["ann"]).documents] == [made]
        assert client.run(lambda view: users.within(view).get("ann")) == {"money": 3}
    assert_indexed(host, "orders")


def test_the_same_for_coroutines(host: MemoryHost) -> None:
    async def scenario() -> None:
        client = host.connect_async("direct")
        users = AsyncCollection(client, "users")
        await users.create_index("by_n", ["n"], unique=True)

        async def two(view: AsyncView) -> None:
            inside = users.within(view)
            await inside.insert({"n": 1})
            await inside.insert({"n": 2 if await inside.get("x") is None else 1})

        await client.run(two)
        with pytest.raises(UniqueViolationError):
            await client.run(two)
        found = await users.find("by_n", ge=1)
        assert [each.data["n"] for each in found.documents] == [1, 2]

    host.portal.call(scenario())


CITIES: st.SearchStrategy[Any] = st.sampled_from(["A", "B", None, 1, 1.5, True, [], "\U0010ffff a"])
DOCUMENTS = st.fixed_dictionaries({}, optional={"city": CITIES, "n": st.integers(-2, 2)})
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "inc", "index", "drop"]), st.integers(0, 3), DOCUMENTS
    ),
    min_size=1,
    max_size=14,
)
INDEXES = [
    ("i0", ["city", "-n"], False),
    ("i1", ["n"], True),
    ("i2", ["-city"], False),
    ("i3", ["n"], False),
]


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(ACTIONS)
def test_indexes_are_what_documents_say_after_any_history(
    actions: list[tuple[str, int, dict[str, Any]]],
) -> None:
    with MemoryHost() as host:
        users = Collection(host.connect("direct"), "users")
        for action, number, document in actions:
            try:
                if action == "put":
                    users.put(str(number), document)
                elif action == "delete":
                    users.delete(str(number))
                elif action == "inc":
                    users.update(str(number), inc={"n": 1})
                elif action == "index":
                    name, fields, unique = INDEXES[number]
                    users.create_index(name, fields, unique=unique)
                else:
                    users.drop_index(INDEXES[number][0])
            except LayerError:
                pass
            assert_indexed(host)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_a_build_that_was_cut_off_goes_on(host: MemoryHost, steps: int) -> None:
    with host.connect() as client:
        users = Collection(client, "users")
        for number in range(120):
            users.put(str(number), {"n": number})
        drive(client, cut_off(users.core.create_index("by_n", ["n"]), steps))
        with pytest.raises(IndexNotReadyError):
            users.find("by_n")
        users.update("7", inc={"n": 1000})
        users.delete("8")
        assert users.create_index("by_n", ["n"])
        assert [found.data["n"] for found in users.find("by_n", ge=119).documents] == [119, 1007]
    assert_indexed(host)


@pytest.mark.parametrize("steps", [4, 7])
def test_an_index_is_made_and_dropped_for_longer_than_a_snapshot_is_kept(
    host: MemoryHost, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(building, "_SCANNED", 4)
    with host.connect() as client:
        users = Collection(client, "users")
        for number in range(10):
            users.put(str(number), {"n": number})

        def pass_time() -> None:
            users.put("5", {"n": -1})
            users.delete("1")
            model = host.database.model
            host.do(lambda: setattr(model, "gone", model.latest().seq))

        making = users.core.create_index("by_n", ["n"])
        assert drive(client, interrupted(making, steps, pass_time))
        assert_indexed(host)
        assert drive(client, interrupted(users.core.drop_index("by_n"), steps, pass_time))
        assert list(client.scan(f"{users.core.prefix}index/")) == []


def test_the_entry_of_another_is_left_alone_while_a_unique_index_is_built(host: MemoryHost) -> None:
    with host.connect() as client:
        users = Collection(client, "users")
        for number in range(60):
            users.put(f"{number:02}", {"n": number % 59})
        building = users.core.create_index("by_n", ["n"], unique=True)
        drive(client, interrupted(building, 4, lambda: users.patch("59", {"n": 100})))
        assert [found.id for found in users.find("by_n", equals=[0]).documents] == ["00"]
    assert_indexed(host)


def test_values_that_are_there_twice_are_found_in_different_chunks(host: MemoryHost) -> None:
    with host.connect() as client:
        users = Collection(client, "users")
        for number in range(60):
            users.put(f"{number:02}", {"n": number % 59})
        with pytest.raises(UniqueViolationError, match="'00'"):
            users.create_index("by_n", ["n"], unique=True)
    assert_indexed(host)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_an_index_that_is_dropped_while_it_is_built_leaves_nothing(
    host: MemoryHost, steps: int
) -> None:
    with host.connect() as client:
        users = Collection(client, "users")
        for number in range(60):
            users.put(f"{number:02}", {"n": number})
        building = users.core.create_index("by_n", ["n"])
        with pytest.raises(IndexNotReadyError, match="was dropped"):
            drive(client, interrupted(building, steps, lambda: users.drop_index("by_n")))
    assert_indexed(host)


def test_an_index_is_built_while_others_write(host: MemoryHost) -> None:
    with host.connect(options=QUICK) as client:
        users = Collection(client, "users")
        for number in range(40):
            users.put(str(number), {"n": number, "writes": 0})
        finished: list[bool] = []

        def write(writer: int) -> None:
            mine = Collection(host.connect(options=QUICK), "users")
            number = writer
            while not finished:
                number = (number * 7 + 3) % 60
                if number % 5 == 0:
                    mine.delete(str(number))
                else:
                    mine.put(str(number), {"n": number % 9, "writes": writer})

        def build() -> None:
            try:
                users.create_index("by_n", ["n", "-writes"])
                assert_indexed(host)
                users.drop_index("by_n")
                users.create_index("by_n", ["n", "-writes"])
            finally:
                finished.append(True)

        together([build, *(partial(write, number) for number in range(3))])
        assert_indexed(host)


def test_only_one_of_many_gets_a_unique_value(host: MemoryHost) -> None:
    Collection(host.connect(), "users").create_index("by_mail", ["mail"], unique=True)
    made: list[str] = []

    def insert(number: int) -> None:
        users = Collection(host.connect(options=QUICK), "users")
        for mail in range(8):
            with contextlib.suppress(UniqueViolationError):
                made.append(users.insert({"mail": mail, "by": number}))

    together(partial(insert, number) for number in range(5))
    assert len(made) == 8
    assert_indexed(host)
