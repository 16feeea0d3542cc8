"""Calls from clients: keys given, from a key function, and found on a snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamydb.client import (
    ConflictError,
    InvalidKeyError,
    InvalidParameterError,
    InvalidTransactionError,
    Options,
    ProcedureAbortedError,
    Range,
    UndeclaredKeyError,
    UnknownProcedureError,
)
from streamydb.errors import ModuleMissing
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.testing.clients import Awaited, MemoryHost

Connect = Callable[..., Any]

SHOP = """
from streamydb.procedures import Abort, procedure

@procedure(keys=lambda args: {"keys": [args["key"]], "reads": ["limit"]})
def raise_to(db, key, amount):
    if amount > db.get("limit", 100):
        raise Abort("above the limit")
    return db.max(key, amount)

def follow(db, start):
    # Which key is written stands under the keys that are read.
    place = start
    while isinstance(db.get(place), str):
        place = db.get(place)
    return db.add(place, 1)

def loose(db, key):
    db.put(key, db.get("b"))

def census(db, prefix, into):
    found = db.scan(prefix)
    db.put(into, len(found))
    return [key for key, value in found]

def total(db, names):
    return sum([db.get(name, 0) for name in names])

def hop(db, key):
    # Where the key is absent, the next one is none.
    return db.get(db.get(key, ""))

def either(db, key, other):
    return db.get(key) or db.get(other)
"""


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    with MemoryHost() as running:
        text = SHOP.encode()
        running.database.modules.put(text)
        module = compile_module("shop", text)
        running.connect().transaction(deploy=module.record)
        yield running


@pytest.fixture(params=["http blocking", "http awaiting", "direct blocking", "direct awaiting"])
def connect(host: MemoryHost, request: pytest.FixtureRequest) -> Connect:
    kind, driver = request.param.split()

    def make(**options: Any) -> Any:
        if driver == "blocking":
            return host.connect(kind, **options)
        return Awaited(host.portal, host.connect_async(kind, **options))

    return make


def scouting(host: MemoryHost, **options: Any) -> Options:
    return Options(modules=host.database.modules, backoff_s=0.001, backoff_max_s=0.004, **options)


def imported(folder: Path) -> Any:
    """The module as a program imports it."""
    (folder / "shop.py").write_text(SHOP)
    spec = importlib.util.spec_from_file_location("shop", folder / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_keys_that_are_given(connect: Connect) -> None:
    client = connect()
    done = client.call(
        "shop.raise_to", key="high", amount=7, keys=["high"], reads=["limit"], after=["high"]
    )
    assert (done.returned, done.reads) == (7, {"high": 7})
    with pytest.raises(ProcedureAbortedError, match="above the limit") as caught:
        client.call("shop.raise_to", {"key": "high", "amount": 101}, keys=["high"], reads=["limit"])
    assert caught.value.reason == "above the limit"
    with pytest.raises(UndeclaredKeyError) as missing:
        client.call("shop.raise_to", key="high", amount=1, keys=["high"])
    assert missing.value.reason == "limit"
    with pytest.raises(UnknownProcedureError):
        client.call("shop.lower_to", keys=[])
    with pytest.raises(InvalidTransactionError):
        client.call("shop", keys=[])


def test_keys_of_a_key_function(connect: Connect, host: MemoryHost, tmp_path: Path) -> None:
    function = imported(tmp_path).raise_to
    assert connect().call(function, key="high", amount=3).returned == 3
    named = connect(options=scouting(host))
    assert named.call("shop.raise_to", key="high", amount=5).returned == 5


def test_keys_that_depend_on_data_are_found(
    connect: Connect, host: MemoryHost, tmp_path: Path
) -> None:
    client = connect(options=scouting(host))
    assert client.call("shop.follow", start="a").returned == 1
    client.put("a", "b")
    client.put("b", "c")
    done = client.call("shop.follow", start="a", after=["a", "b", "c"])
    assert done.reads == {"a": "b", "b": "c", "c": 1}
    assert connect().call(imported(tmp_path).follow, start="a").returned == 2


def test_keys_are_looked_up_together(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=scouting(host))
    client.atomic().put("n7", 7).put("n599", 8).commit()
    before = host.faults.sent["Read"]
    names = [f"n{number}" for number in range(600)]
    assert client.call("shop.total", names=names).returned == 15
    assert host.faults.sent["Read"] - before == 4, "the module, and up to 256 keys at a time"


def test_a_key_that_is_looked_up_in_vain_does_no_harm(connect: Connect, host: MemoryHost) -> None:
    """Before the first key is read, the others are guesses, which may be none."""
    client = connect(options=scouting(host))
    client.atomic().put("a", "b").put("b", 5).commit()
    assert client.call("shop.hop", key="a").returned == 5
    with pytest.raises(InvalidKeyError):
        client.call("shop.hop", key="c")
    assert client.call("shop.either", key="a", other="b", pinned=True).returned == "b"
    call = json.loads(host.database.log.records[-1])
    assert call["call"]["reads"] == ["a"]
    assert [check["key"] for check in call["checks"]] == ["a"]


def moving(host: MemoryHost, calls: int) -> MemoryModules:
    """Modules of a client: finding one moves a pointer behind its snapshot, so many times."""
    left = [calls]

    async def write() -> None:
        left[0] -= 1
        record = {"op": "put", "key": "b", "value": f"c{left[0]}"}
        data = json.dumps({"id": f"moved{left[0]}", "updates": [record]}).encode()
        await host.database.log.append(f"moved{left[0]}", data)

    class Moving(MemoryModules):
        def find(self, name: str, digest: str) -> Any:
            if left[0]:
                _now(host, write())
            return super().find(name, digest)

    return Moving(host.database.modules.texts)


def _now(host: MemoryHost, work: Coroutine[Any, Any, None]) -> None:
    """Do what never waits in the loop of the host, from whichever thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        host.portal.call(work)
    else:
        with contextlib.suppress(StopIteration):
            work.send(None)


def test_keys_that_change_meanwhile_are_found_again(connect: Connect, host: MemoryHost) -> None:
    host.connect().atomic().put("a", "b").put("b", "x").commit()
    options = Options(modules=moving(host, 3), backoff_s=0.001, backoff_max_s=0.004)
    client = connect(options=options)
    assert client.call("shop.follow", start="a").returned == 1
    assert client.get("c0") == 1
    assert client.get("x") is None


def test_the_number_of_attempts_is_bounded(connect: Connect, host: MemoryHost) -> None:
    host.connect().atomic().put("a", "b").put("b", "x").commit()
    options = Options(modules=moving(host, 100), backoff_s=0.001, backoff_max_s=0.004)
    with pytest.raises(ConflictError, match="in each of 3 attempts"):
        connect(options=options).call("shop.follow", start="a", calls_max=3)


@pytest.mark.parametrize(("pinned", "sent"), [(False, 1), (True, 2)])
def test_pinned_reads_must_be_unchanged(
    connect: Connect, host: MemoryHost, *, pinned: bool, sent: int
) -> None:
    """A change of a value that does not change the keys matters only to a pinned call."""
    host.connect().put("b", "x")
    options = Options(modules=moving(host, 1), backoff_s=0.001, backoff_max_s=0.004)
    done = connect(options=options).call("shop.loose", key="copy", pinned=pinned, after=["copy"])
    assert done.reads == {"copy": "c0"}
    assert sum(b'"call"' in record for record in host.database.log.records) == sent


def test_ranges_are_given_and_found(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=Options(modules=host.database.modules, page_entries=1))
    client.put("n/1", 1)
    client.put("n/2", 2)
    assert client.call("shop.census", prefix="n/", into="n/3").returned == ["n/1", "n/2"]
    for ranges in (["n/"], [{"prefix": "n/"}], [Range(start="n", end="o")]):
        done = client.call("shop.census", prefix="n/", into="x", keys=["x"], ranges=ranges)
        assert done.returned == ["n/1", "n/2", "n/3"]
    with pytest.raises(UndeclaredKeyError) as missing:
        client.call("shop.census", prefix="n/", into="x", keys=["x"], ranges=["n/1"])
    assert missing.value.reason == "n/"


@pytest.mark.parametrize(("pinned", "sent"), [(False, 1), (True, 2)])
def test_pinned_ranges_must_be_unchanged(
    connect: Connect, host: MemoryHost, *, pinned: bool, sent: int
) -> None:
    options = Options(modules=moving(host, 1), backoff_s=0.001, backoff_max_s=0.004)
    done = connect(options=options).call("shop.census", prefix="b", into="n", pinned=pinned)
    assert done.returned == ["b"]
    assert sum(b'"call"' in record for record in host.database.log.records) == sent


def test_without_the_code_the_keys_must_be_given(connect: Connect, host: MemoryHost) -> None:
    with pytest.raises(InvalidParameterError, match="procedures=FOLDER"):
        connect().call("shop.follow", start="a")
    with pytest.raises(InvalidParameterError, match="not deployed"):
        connect(options=scouting(host)).call("store.follow", start="a")
    with pytest.raises(InvalidParameterError, match="a name or a function"):
        connect().call(5)
    with pytest.raises(ModuleMissing):
        connect(options=Options(modules=MemoryModules())).call("shop.follow", start="a")


def test_a_key_function_that_fails_is_told_of(
    connect: Connect, host: MemoryHost, tmp_path: Path
) -> None:
    before = len(host.database.log.records)
    with pytest.raises(InvalidParameterError, match=r"key function of shop\.raise_to .*KeyError"):
        connect().call(imported(tmp_path).raise_to, amount=1)
    with pytest.raises(InvalidParameterError, match=r"key function of shop\.raise_to .*KeyError"):
        connect(options=scouting(host)).call("shop.raise_to", amount=1)
    assert len(host.database.log.records) == before


def test_a_text_is_not_taken_for_a_list_of_keys(connect: Connect, host: MemoryHost) -> None:
    client, before = connect(), host.faults.sent.total()
    wrong: list[Callable[[], Any]] = [
        lambda: client.read("ab"),
        lambda: client.run(lambda view: view.read("ab")),
        lambda: client.call("shop.loose", keys="ab"),
        lambda: client.call("shop.loose", keys=["a"], reads="ab"),
        lambda: client.transaction(reads="ab"),
        lambda: client.transaction(reads={"ab": 1}),
        lambda: client.transaction(checks={"ab": 1}),
        lambda: client.transaction(updates={"ab": 1}),
        lambda: client.transaction(locks={"ab": 1}),
    ]
    for each in wrong:
        with pytest.raises(InvalidParameterError, match=r"a list, here \[.*ab"):
            each()
    assert host.faults.sent.total() == before


def test_an_abort_under_reconnaissance_is_decided_by_the_log(
    connect: Connect, host: MemoryHost
) -> None:
    client = connect(options=scouting(host))
    with pytest.raises(UnknownProcedureError):
        client.call("shop.nothing")
    client.put("a", "b")
    client.put("b", {"no": "key"})
    with pytest.raises(Exception, match="not-a-number"):
        client.call("shop.follow", start="a")
