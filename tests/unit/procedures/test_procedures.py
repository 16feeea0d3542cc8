"""What a procedure does to the database, how versions are found, and what a record may say."""

from __future__ import annotations

import gc
import json
import pickle
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings

from streamydb import limits
from streamydb.errors import ModuleMissing
from streamydb.facade.auth import Caller
from streamydb.facade.payloads import authorise, parse
from streamydb.facade.problems import ProblemError
from streamydb.local.module_folder import FolderModules, load_file, publish, published
from streamydb.procedures import Abort, key_function, procedure
from streamydb.procedures.chance import Random
from streamydb.procedures.core import declared_keys
from streamydb.procedures.declare import DeclaredKeys
from streamydb.procedures.modules import MemoryModules, ModuleRefused, compile_module, hash_of
from streamydb.records import Rejection, Transaction, decode, keys
from streamydb.verify.oracle.core import Oracle
from tests.support.generators import PLAIN_UPDATES, STORED
from tests.support.procedures import call, evaluate, module_of, returned

MIRROR = """
def apply(db, update):
    op = update["op"]
    key = update["key"]
    if op == "put":
        db.put(key, update["value"])
    elif op == "delete":
        db.delete(key)
    elif op == "add":
        db.add(key, update["by"], min=update.get("min"), max=update.get("max"))
    elif op == "max":
        db.max(key, update["value"])
    elif op == "min":
        db.min(key, update["value"])
    elif op == "append":
        db.append(key, update["value"])
    else:
        db.next_id(key)
"""
HASH = "sha256:" + "0" * 64


def record(**fields: Any) -> bytes:
    return json.dumps({"id": "t", **fields}).encode()


def code_of(**fields: Any) -> str | None:
    found = decode(record(**fields))
    return found.code if isinstance(found, Rejection) else None


class Log:
    """An oracle with modules, and what came of each record."""

    def __init__(self) -> None:
        self.modules = MemoryModules()
        self.oracle = Oracle("db", modules=self.modules)
        self.count = 0

    def send(self, **fields: Any) -> dict[str, Any]:
        self.count += 1
        data = json.dumps({"id": f"t{self.count}", **fields}).encode()
        found: dict[str, Any] = json.loads(
            self.oracle.apply(data, 0, self.count, 1000 + self.count)[0].value or b""
        )
        return found

    def deploy(self, text: str, name: str = "m") -> None:
        module = compile_module(name, text.encode())
        self.modules.put(text.encode())
        assert self.send(deploy=module.record)["status"] == "committed"


@settings(max_examples=150)
@given(STORED, PLAIN_UPDATES)
def test_db_does_what_updates_do(value: Any, update: dict[str, Any]) -> None:
    plain, called = Log(), Log()
    called.deploy(MIRROR)
    plain.send()
    key = update["key"]
    for log in (plain, called):
        log.send(updates=[{"op": "put", "key": key, "value": value}])
    left = plain.send(updates=[update], reads=[key])
    named = {"procedure": "m.apply", "args": {"update": update}, "keys": [key]}
    right = called.send(call=named, reads=[key])
    assert (left["status"], left["code"]) == (right["status"], right["code"])
    if left["status"] == "committed":
        wanted = dict(left["reads"])
        assert right["reads"] == wanted
    state = dict(called.oracle.state)
    state.pop("$procedures/m")
    assert state == plain.oracle.state


def test_own_writes_are_read_and_written_in_the_order_of_the_first() -> None:
    called = evaluate(
        """
        db.put("b", [1])
        first = db.get("b")
        first.append(2)
        db.append("b", 3)
        db.put("a", 1)
        db.delete("a")
        db.add("a", 5)
        return [db.get("b"), db.get("a"), db.exists("a"), db.version("a"), db.get("b", 9)]
        """
    )
    assert returned(called) == [[1, 3], 5, True, 0, [1, 3]]
    assert list(called.writes.items()) == [("b", b"[1,3]"), ("a", b"5")]


def test_a_list_may_be_deeper_by_one_than_a_value_that_is_given() -> None:
    """The oracle refused what the engine appends, and `check` ended by that."""
    log = Log()
    log.deploy(
        """
def keep(db):
    deep = []
    for _ in range(63):
        deep = [deep]
    db.append("a", deep)
"""
    )
    for _ in range(2):
        result = log.send(call={"procedure": "m.keep", "keys": ["a"]})
        assert result["status"] == "committed"
    deep = b"[" * 64 + b"]" * 64
    assert log.oracle.state["a"][0] == b"[" + deep + b"," + deep + b"]"


def test_the_place_is_that_of_the_transaction() -> None:
    called = evaluate("return [db.seq, db.now, db.id]")
    assert returned(called) == [42, 1_700_000_000_000, "txn-1"]


def test_random_numbers_never_change() -> None:
    """They are part of what a log means, as the steps are."""
    random = Random(42)
    assert [random.bits(), random.below(1000), random.random()] == PINNED_DRAWS
    drawn = evaluate(
        """
        items = list(range(6))
        db.random.shuffle(items)
        return [db.random.randint(1, 6), db.random.choice("abc"), items, db.random.random()]
        """
    )
    assert returned(drawn) == PINNED_CALL


PINNED_DRAWS: list[Any] = [16765751490331007413, 100, 0.5119746480540989]
PINNED_CALL: list[Any] = [3, "b", [4, 5, 3, 2, 0, 1], 0.8305831775207139]


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ("raise Abort('not now')", "procedure-aborted", "not now"),
        ("raise Abort('x' * 5000)", "procedure-aborted", "x" * 1024),
        ("raise Abort(5)", "procedure-aborted", "int"),
        ("raise Abort", "procedure-error", "TypeError"),
        ("raise Abort('\\ud800')", "procedure-aborted", "?"),
        ("db.put('c', 1)", "undeclared-key", "c"),
        ("db.get('c')", "undeclared-key", "c"),
        ("db.put('r', 1)", "undeclared-key", "r"),
        ("db.add('a', 1, max=0)", "bound-violated", "a"),
        ("db.put('a', [])\ndb.add('a', 1)", "not-a-number", "a"),
        ("db.put('a', 1)\ndb.append('a', 1)", "not-a-list", "a"),
        ("db.add('a', 2**63 - 1)\ndb.add('a')", "overflow", "a"),
        ("db.put('a', 'x' * 262143)", "value-too-large", "a"),
    ],
)
def test_the_ways_to_abort(body: str, code: str, reason: str) -> None:
    lines = "\n".join("    " + line for line in body.splitlines())
    text = f"from streamydb.procedures import Abort\ndef f(db):\n    db.put('b', 1)\n{lines}\n"
    called = call(module_of(text), "f", {}, reads=["r"])
    assert (called.code, called.reason, called.writes) == (code, reason, {})


def test_arguments_must_fit_the_signature() -> None:
    module = module_of("def f(db, x, y=2):\n    return [x, y]")
    assert module.procedures == {"f": ("x", "y")}
    assert returned(call(module, "f", {"x": 1.0})) == [1, 2]
    for args in ({}, {"z": 1}, {"x": 1, "db": 2}):
        assert call(module, "f", args).reason == "TypeError"


def test_which_functions_are_procedures() -> None:
    module = module_of(
        """
        from __future__ import annotations
        from typing import Any
        from streamydb.procedures import procedure

        def keys_of(args: dict[str, Any]) -> list[str]:
            return [f"acct/{args['who']}"]

        @procedure(keys=keys_of)
        def plain(connection, who: str) -> None:
            pass

        @procedure
        def marked(connection, *, what: int = 1): pass

        def public(db): pass
        def _private(db): pass
        def helper(x): pass
        """
    )
    assert module.procedures == {"plain": ("who",), "marked": ("what",), "public": ()}
    assert declared_keys(module, "plain", {"who": "x"}) == DeclaredKeys(["acct/x"], [], [])
    assert declared_keys(module, "public", {}) is None
    with pytest.raises(ValueError, match="KeyError"):
        declared_keys(module, "plain", {})


def test_in_plain_python_the_marks_do_nothing() -> None:
    @procedure(keys=lambda args: [args["key"]])
    def take(db: dict[str, int], key: str) -> int:
        if key not in db:
            raise Abort("nothing there")
        return db.pop(key)

    function = key_function(take)
    assert function is not None
    assert function({"key": "a"}) == ["a"]
    assert take({"a": 1}, "a") == 1
    with pytest.raises(Abort, match="nothing there"):
        take({}, "a")


def test_versions_lie_side_by_side_and_are_found_by_hash(tmp_path: Path) -> None:
    file, folder = tmp_path / "bank.py", tmp_path / "modules"
    hashes = []
    for version in (1, 2):
        file.write_text(f"def f(db):\n    return {version}\n")
        hashes.append(publish(file, folder).hash)
        assert publish(file, folder).hash == hashes[-1]
    assert [found.hash for found in published(folder)] == sorted(hashes)
    sent = pickle.dumps(FolderModules([tmp_path / "none", folder]))
    modules = pickle.loads(sent)  # noqa: S301 - our own
    for version, digest in enumerate(hashes, 1):
        assert returned(call(modules.find("bank", digest), "f", {})) == version
    assert FolderModules([file]).find("bank", hashes[1]).hash == hashes[1]
    assert FolderModules([tmp_path]).find("bank", hashes[1]).hash == hashes[1]


def test_a_missing_changed_or_refused_version_is_named(tmp_path: Path) -> None:
    text = b"def f(db):\n    return 1\n"
    digest = hash_of(text)
    for places in ([], [tmp_path]):
        with pytest.raises(ModuleMissing, match=digest) as caught:
            FolderModules(places).find("bank", digest)
        assert "--procedures" in str(caught.value) or "put its file" in str(caught.value)
    name = f"bank.{digest.removeprefix('sha256:')}.py"
    (tmp_path / name).write_bytes(text + b"#")
    with pytest.raises(ModuleMissing, match="not on this machine"):
        FolderModules([tmp_path]).find("bank", digest)
    bad = b"import os\n"
    (tmp_path / "bank.py").write_bytes(bad)
    with pytest.raises(ModuleMissing, match=r"bank\.py:1: import os"):
        FolderModules([tmp_path]).find("bank", hash_of(bad))
    with pytest.raises(ModuleRefused):
        load_file(tmp_path / "bank.py")


def test_a_call_runs_the_version_that_is_deployed_before_it() -> None:
    log = Log()
    asked = {"procedure": "m.f", "keys": ["a"]}
    assert log.send(call=asked)["code"] == "unknown-procedure"
    log.deploy("def f(db):\n    db.put('a', 1)\n    return 'one'\n")
    first = log.send(call=asked, reads=["a", "$procedures/m"])
    assert (first["returned"], first["reads"]["a"]) == ("one", 1)
    assert first["reads"]["$procedures/m"]["procedures"] == {"f": []}
    log.deploy("def f(db, n=3):\n    db.delete('a')\n    return n\n\ndef g(db): pass\n")
    assert log.send(call=asked, reads=["a"])["reads"] == {"a": None}
    assert log.send(call={"procedure": "m.g"})["returned"] is None
    assert log.send(call={"procedure": "m.h"})["code"] == "unknown-procedure"
    assert log.send(call={"procedure": "m.h"})["reason"] == "m.h"
    failed = log.send(call=asked, checks=[{"key": "a", "exists": True}])
    assert (failed["code"], "reason" in failed, "returned" in failed) == (
        "check-failed",
        False,
        False,
    )


def test_a_missing_version_is_no_verdict() -> None:
    log = Log()
    deploy = {"module": "m", "hash": HASH, "procedures": {"f": []}}
    assert log.send(deploy=deploy)["status"] == "committed"
    assert log.send(call={"procedure": "m.g"})["code"] == "unknown-procedure"
    with pytest.raises(ModuleMissing, match=HASH):
        log.send(call={"procedure": "m.f"})


def test_a_result_has_room_for_what_is_returned_up_to_the_limit() -> None:
    log = Log()
    log.deploy("def f(db, n, m):\n    return ['x' * m] * n\n")
    fits = {"procedure": "m.f", "args": {"n": 8, "m": 100_000}}
    assert log.send(call=fits)["status"] == "committed"
    large = log.send(call={"procedure": "m.f", "args": {"n": 9, "m": 100_000}})
    assert (large["code"], "returned" in large) == ("result-too-large", False)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"call": {"procedure": "m.f"}}, None),
        ({"call": {"procedure": "m.f", "args": {"x": [1.0]}, "keys": ["a", "a"], "reads": []}},
         None),
        ({"call": {"procedure": "m.f", "reads": ["$procedures/m"]}, "updates": []}, None),
        ({"call": {"procedure": "f"}}, "invalid-transaction"),
        ({"call": {"procedure": "m.f.g"}}, "invalid-transaction"),
        ({"call": {"procedure": "m.f\n"}}, "invalid-transaction"),
        ({"call": {"procedure": "m.é"}}, "invalid-transaction"),
        ({"call": {"procedure": "m." + "f" * 64}}, None),
        ({"call": {"procedure": "m." + "f" * 65}}, "invalid-transaction"),
        ({"call": {"procedure": "m.f", "more": 1}}, "invalid-transaction"),
        ({"call": {"procedure": "m.f", "args": []}}, "invalid-transaction"),
        ({"call": None}, "invalid-transaction"),
        ({"call": {"procedure": "m.f", "keys": [""]}}, "invalid-key"),
        ({"call": {"procedure": "m.f", "keys": ["k" * 481]}}, "invalid-key"),
        ({"call": {"procedure": "m.f", "keys": [5]}}, "invalid-key"),
        ({"call": {"procedure": "m.f", "reads": ["é" * 241]}}, "invalid-key"),
        ({"call": {"procedure": "m.f", "args": {"x": 2**64}}}, "number-range"),
        ({"call": {"procedure": "m.f", "keys": ["$a"]}}, "reserved-key"),
        ({"updates": [{"op": "put", "key": "$procedures/m", "value": 1}]}, "reserved-key"),
        ({"updates": [{"op": "delete", "key": "$"}]}, "reserved-key"),
        ({"updates": [{"op": "add", "key": "\u0024x", "by": 1}]}, "reserved-key"),
        ({"reads": ["$procedures/m"], "checks": [{"key": "$x", "exists": False}]}, None),
        ({"call": {"procedure": "m.f"}, "updates": [{"op": "delete", "key": "a"}]},
         "call-not-alone"),
        ({"deploy": {"module": "m", "hash": HASH, "procedures": {"f": ["x"]}}}, None),
        ({"deploy": {"module": "m", "hash": HASH, "procedures": {"f": [1]}}},
         "invalid-transaction"),
        ({"deploy": {"module": "m", "hash": HASH}}, "invalid-transaction"),
        ({"deploy": {"module": "m/x", "hash": HASH, "procedures": {}}}, "invalid-transaction"),
        ({"deploy": {"module": "m", "hash": HASH.upper(), "procedures": {}}},
         "invalid-transaction"),
        ({"deploy": {"module": "m", "hash": HASH, "procedures": {"f": ["x" * 262_100]}}},
         "value-too-large"),
        ({"deploy": {"module": "m", "hash": HASH, "procedures": {}}, "call": {"procedure": "m.f"}},
         "call-not-alone"),
        ({"deploy": {"module": "m", "hash": HASH, "procedures": {}},
          "updates": [{"op": "delete", "key": "a"}]}, "call-not-alone"),
    ],
)  # fmt: skip
def test_what_a_record_may_say(fields: dict[str, Any], code: str | None) -> None:
    assert code_of(**fields) == code


def test_the_keys_of_a_call_count() -> None:
    most = [f"k{n}" for n in range(limits.KEYS_PER_TRANSACTION_MAX)]
    assert code_of(call={"procedure": "m.f", "keys": most[1:]}) is None
    assert code_of(call={"procedure": "m.f", "keys": most}) == "too-many-keys"
    assert code_of(call={"procedure": "m.f", "keys": most[1:], "reads": ["$procedures/m"]}) is None


def test_a_call_reads_the_key_of_its_module() -> None:
    txn = decode(record(call={"procedure": "m.f", "keys": ["a"], "reads": ["b", "a"]}, reads=["c"]))
    assert isinstance(txn, Transaction)
    assert keys(txn) == {"c": False, "$procedures/m": False, "b": False, "a": True}


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"call": {"procedure": "m.f", "keys": ["own/1"], "reads": ["open/1"]}}, True),
        ({"call": {"procedure": "m.f", "keys": ["open/1"]}}, False),
        ({"call": {"procedure": "m.f", "reads": ["secret"]}}, False),
        ({"call": {"procedure": "m.f"}, "reads": ["secret"]}, False),
        ({"deploy": {"module": "m", "hash": HASH, "procedures": {}}}, False),
    ],
)
def test_tokens_cover_calls_and_deploys(fields: dict[str, Any], *, allowed: bool) -> None:
    client = Caller("c", ["own/", "open/"], ["own/"])
    txn = parse(record(**fields))
    if allowed:
        authorise(txn, client)
    else:
        with pytest.raises(ProblemError, match=r"forbidden|scope"):
            authorise(txn, client)
    authorise(txn, Caller("operator", [""], ["", "$procedures/"]))


LEAVING = {
    "commits": "return [n for n in range(3)]",
    "aborts": "raise Abort('no')",
    "fails": "return {}['a']",
    "a lambda": "return sorted([2, 1], key=lambda n: -n)",
    "without end": "while True: pass",
    "recursion": "return m()",
    "an undeclared key": "return db.get('elsewhere')",
}


@pytest.mark.parametrize("body", LEAVING.values(), ids=LEAVING)
def test_a_call_leaves_no_cycles_behind(body: str) -> None:
    """`streamydb check` runs with the collector off: a cycle a call would be there for good."""
    text = f"""
        from streamydb.procedures import Abort, procedure

        def m():
            return m()

        @procedure
        def p(db):
            {body}
    """
    log = Log()
    log.deploy(dedent(text))
    call = {"procedure": "m.p", "args": {}, "keys": ["a"]}
    log.send(call=call)
    gc.freeze()
    gc.disable()
    try:
        log.send(call=call)
        assert gc.collect() == 0
    finally:
        gc.enable()
