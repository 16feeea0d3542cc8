"""Constraints: what may be declared, what each rule says, and what a transaction makes of them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb import limits
from streamydb.constraints import Constraint, DeclarationRefused, amended, parse
from streamydb.constraints.schema import compile_schema
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.records import Rejection, canonical, decode, decode_result
from streamydb.records.attempts import relocked
from streamydb.verify.oracle.core import Oracle

RULES = {"max": 3, "required": True}
DECLARED = {"name": "c", "prefix": "k/"}


def declare(**rules: Any) -> bytes:
    return canonical({"declare": {**DECLARED, **rules}})


def rule(**rules: Any) -> Constraint:
    return parse(amended(None, declare(**rules), 1)).all[0]


class Log:
    """An oracle, and what came of each record."""

    def __init__(self) -> None:
        self.modules = MemoryModules()
        self.oracle = Oracle("db", modules=self.modules)
        self.count = 0

    def send(self, **fields: Any) -> dict[str, Any]:
        """The verdict; a transaction that lacks locks is sent again with them."""
        self.count += 1
        name = f"t{self.count}"
        payload = json.dumps({"id": name, **fields}).encode()
        attempt: tuple[str, bytes] | None = (name, payload)
        while attempt is not None:
            self.count += 1
            found = self.oracle.apply(attempt[1], 0, self.count, 1000)[0].value or b""
            attempt = relocked(*attempt, decode_result(found))
        verdict: dict[str, Any] = json.loads(found)
        return verdict

    def declare(self, **rules: Any) -> None:
        verdict = self.send(constrain={"declare": {**DECLARED, **rules}})
        assert verdict["status"] == "committed", verdict

    def put(self, key: str, value: Any) -> str | None:
        verdict = self.send(updates=[{"op": "put", "key": key, "value": value}])
        found: str | None = verdict["code"]
        return verdict["failed"][0]["violated"] if verdict["failed"] else found


@pytest.mark.parametrize(
    ("rules", "good", "bad", "violated"),
    [
        ({"type": "integer"}, 1, 1.5, "type integer"),
        ({"type": "number"}, 1.5, True, "type number"),
        ({"type": "boolean"}, True, 1, "type boolean"),
        ({"type": "string"}, "", 1, "type string"),
        ({"type": "list"}, [], {}, "type list"),
        ({"type": "object"}, {}, [], "type object"),
        ({"min": 0}, 0, -1, "min 0"),
        ({"min": 0}, 2.5, "a", "min 0"),
        ({"max": 2.5}, 2.5, 3, "max 2.5"),
        ({"max": 1}, 0, True, "max 1"),
        ({"length": {"min": 1}}, [None], [], "length at least 1"),
        ({"length": {"max": 2}}, "é😀", "abc", "length at most 2"),
        ({"length": {"max": 2}}, "", 1, "length of a string or list"),
        ({"schema": {"required": ["a/b"]}}, {"a/b": 1}, {}, 'schema required "a/b" at /'),
    ],
)
def test_rules(rules: dict[str, Any], good: Any, bad: Any, violated: str) -> None:
    assert rule(**rules).fault(good) is None
    assert rule(**rules).fault(bad) == violated


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({}, "give a rule"),
        ({"size": 1}, "no such rule: size"),
        ({"type": "float"}, "type is one of"),
        ({"min": "1"}, "min is a number"),
        ({"max": True}, "max is a number"),
        ({"length": {}}, "length is"),
        ({"length": {"min": -1}}, "length is"),
        ({"required": False}, "required is true"),
        ({"unique": "email"}, "unique is"),
        ({"unique": "$" + ".a" * 9}, "unique is"),
        ({"type": "list", "prefix": "$constraints"}, "reserved"),
        ({"type": "list", "prefix": 1}, "prefix is a text"),
        ({"type": "list", "name": "1"}, "a name is"),
        ({"type": "list", "name": "a" * (limits.CONSTRAINT_NAME_CHARACTERS_MAX + 1)}, "a name is"),
        ({"keys": 3}, "keys is"),
        ({"keys": {"max": 0}}, "keys is"),
        ({"keys": {"max": limits.RANGE_KEYS_MAX + 1}}, "n is 1 to 10000"),
        ({"keys": {"max": True}}, "keys is"),
        ({"keys": {"each": "/"}}, "keys is"),
        ({"keys": {"max": 1, "every": "/"}}, "keys is"),
        ({"keys": {"max": 1, "each": ""}}, "a prefix that is not empty"),
        ({"keys": {"max": 1, "each": 1}}, "a prefix that is not empty"),
        ({"keys": {"max": 1}, "prefix": ""}, "a prefix that is not empty"),
        ({"schema": {"$ref": "http://example.org"}}, "/$ref is not supported"),
        ({"schema": {"properties": {"a": {"pattern": "x"}}}}, "/properties/a/pattern is not"),
        ({"schema": {"items": 5}}, "/items is no schema"),
        ({"schema": {"multipleOf": 0.1}}, "/multipleOf is an integer"),
        ({"schema": {"type": "float"}}, "/type is one or more"),
        ({"schema": {"anyOf": [{}] * limits.SCHEMA_NODES_MAX}}, "more than 1000 schemas"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationRefused, match=reason.replace("$", r"\$")):
        amended(None, declare(**rules), 1)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"not": found}
    return found


def test_a_reason_is_the_same_on_every_python() -> None:
    """Python shows more characters from version to version; U+1E4D0 came with Unicode 15.0."""
    with pytest.raises(DeclarationRefused) as refused:
        amended(None, canonical({"drop": "it's é\U0001e4d0"}), 1)
    assert str(refused.value) == 'there is no constraint "it\'s é\\U0001e4d0"'


def test_limits_at_n_and_n_plus_1() -> None:
    compile_schema(nested(limits.SCHEMA_DEPTH_MAX))
    with pytest.raises(DeclarationRefused, match="nested more than"):
        compile_schema(nested(limits.SCHEMA_DEPTH_MAX + 1))
    compile_schema({"anyOf": [{}] * (limits.SCHEMA_NODES_MAX - 1)})
    value: bytes | None = None
    for number in range(limits.CONSTRAINTS_MAX):
        value = amended(value, declare(name=f"c{number}", min=0), number)
    amended(value, declare(name="c0", min=1), 999)
    with pytest.raises(DeclarationRefused, match="256"):
        amended(value, declare(name="more", min=0), 999)


def test_a_judgement_that_takes_too_long_is_a_violation() -> None:
    schema = {"items": {"anyOf": [{"const": n} for n in range(900)]}}
    assert compile_schema(schema).fault([899] * 50) is None
    assert compile_schema(schema).fault([899] * 5000) == "schema takes too many steps"


def test_a_broken_rule_tells_its_place_as_a_json_pointer() -> None:
    inner = {"additionalProperties": {"type": "integer"}}
    schema = compile_schema({"additionalProperties": {"items": inner}})
    assert schema.fault({"a/b": [{}, {"~": "x"}]}) == 'schema type "integer" at /a~1b/1/~0'
    assert schema.fault({"a/b": [{}, {"~": 1}]}) is None
    assert compile_schema(schema=False).fault(1) == "schema nothing fits at /"


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "ab"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
COUNTS = st.integers(0, 3)
NAMES = st.lists(st.sampled_from("abc"), max_size=2, unique=True)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    objects = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    types = ["null", "boolean", "integer", "number", "string", "array", "object"]
    rules: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from([*types, ["integer", "null"]]),
        "enum": st.lists(VALUES, min_size=1, max_size=3), "const": VALUES,
        **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
                        st.integers(-2, 2)),
        "multipleOf": st.integers(1, 3), "uniqueItems": st.booleans(), "required": NAMES,
        "dependentRequired": st.dictionaries(st.sampled_from("abc"), NAMES, max_size=2),
        **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems", "minProperties",
                         "maxProperties", "minContains", "maxContains"], COUNTS),
        **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], lists),
        **dict.fromkeys(["not", "items", "contains", "additionalProperties", "propertyNames",
                         "if", "then", "else"], inner),
        "properties": objects, "dependentSchemas": objects,
    }  # fmt: skip
    return st.fixed_dictionaries({}, optional=rules)


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), st.just({})), _schemas, max_leaves=6
)


@settings(max_examples=400)
@given(SCHEMAS, VALUES)
def test_schemas_mean_what_a_full_validator_says(schema: Any, value: Any) -> None:
    wanted = jsonschema_rs.Draft202012Validator(schema).is_valid(value)
    assert (compile_schema(schema).fault(value) is None) == wanted


@pytest.mark.parametrize(
    "update",
    [
        {"op": "put", "value": 9},
        {"op": "add", "by": 9},
        {"op": "max", "value": 9},
        {"op": "next_id"},
        {"op": "append", "value": 1},
        {"op": "delete"},
    ],
)
def test_every_operation_is_judged_by_what_it_leaves(update: dict[str, Any]) -> None:
    log = Log()
    log.put("k/1", [1, 2] if update["op"] == "append" else 3)
    log.declare(**({"length": {"max": 2}} if update["op"] == "append" else RULES))
    before = dict(log.oracle.state)
    verdict = log.send(updates=[{**update, "key": "k/1"}, {"op": "put", "key": "x", "value": 1}])
    assert verdict["code"] == "constraint-violated"
    assert [entry["constraint"] for entry in verdict["failed"]] == ["c"]
    assert log.oracle.state == before


def test_procedures_are_judged_by_their_last_value() -> None:
    text = b"def set(db, values):\n    for value in values:\n        db.put('k/1', value)\n"
    log = Log()
    digest = log.modules.put(text)
    procedures = compile_module("m", text).procedures
    log.send(deploy={"module": "m", "hash": digest, "procedures": procedures})
    log.declare(max=3)
    call = {"procedure": "m.set", "keys": ["k/1"]}
    assert log.send(call={**call, "args": {"values": [9, 3]}})["status"] == "committed"
    verdict = log.send(call={**call, "args": {"values": [3, 9]}})
    assert (verdict["code"], verdict["failed"][0]["value"]) == ("constraint-violated", 9)


@pytest.mark.parametrize(
    ("rules", "violated"),
    [
        ({"unique": "$"}, None), ({"schema": {"const": 1}}, "schema const at /"),
        ({"schema": {"enum": [1]}}, "schema enum at /"), ({"schema": {"uniqueItems": True}}, None),
        ({"schema": {"not": {"const": []}}}, None),
    ],
)  # fmt: skip
def test_a_list_that_is_deeper_than_other_values_is_judged(
    rules: dict[str, Any], violated: str | None
) -> None:
    """A procedure may append what is as deep as a value may be; it was a fault of ours."""
    log = Log()
    text = b"""
def keep(db):
    deep = []
    for _ in range(63):
        deep = [deep]
    db.append("k/a", deep)
"""
    log.modules.put(text)
    log.send(deploy=compile_module("m", text).record)
    log.declare(**rules)
    verdict = log.send(call={"procedure": "m.keep", "keys": ["k/a"]})
    assert [failed["violated"] for failed in verdict["failed"]] == ([violated] if violated else [])
    assert (verdict["status"] == "committed") == (violated is None)


def test_constraints_hold_from_their_place_on() -> None:
    log = Log()
    assert log.put("k/1", -5) is None
    log.declare(min=0)
    assert log.put("k/1", -4) == "min 0"
    assert log.send(reads=["k/1"])["reads"] == {"k/1": -5}
    assert log.put("other", -4) is None
    log.send(constrain={"drop": "c"})
    assert log.put("k/1", -4) is None
    assert "$constraints" not in log.oracle.state


def test_uniqueness_over_a_field() -> None:
    log = Log()
    log.declare(unique="$.email")
    assert log.put("k/1", {"email": "a"}) is None
    assert log.put("k/2", {"email": "a"}) == "unique"
    assert log.put("k/2", {"email": None}) is None
    assert log.put("k/3", {"email": None}) is None
    assert log.put("k/1", {"email": "a", "age": 3}) is None
    swap = [("k/1", {"email": "b"}), ("k/2", {"email": "a"})]
    verdict = log.send(updates=[{"op": "put", "key": k, "value": v} for k, v in swap])
    assert verdict["status"] == "committed"
    both = [{"op": "put", "key": f"k/{n}", "value": {"email": "z"}} for n in (7, 8)]
    assert log.send(updates=both)["failed"][0]["key"] == "k/8"
    log.send(updates=[{"op": "delete", "key": "k/2"}])
    assert log.put("k/3", {"email": "a"}) is None
    owners = {k: v[0] for k, v in log.oracle.state.items() if k.startswith("$unique/")}
    assert sorted(owners.values()) == [b'"k/1"', b'"k/3"']


def test_how_many_keys_a_group_has() -> None:
    log = Log()
    log.declare(keys={"max": 2, "each": "/"})
    assert log.put("k/ann/1", 1) is None
    assert log.put("k/ann/2", 1) is None
    assert log.put("k/ann/2", 2) is None
    assert log.put("k/ann/3", 1) == "keys at most 2"
    assert log.put("k/bob/1", 1) is None
    assert log.put("k/lonely", 1) is None
    assert log.put("k/lonely2", 1) is None
    swap = [{"op": "delete", "key": "k/ann/1"}, {"op": "put", "key": "k/ann/3", "value": 1}]
    assert log.send(updates=swap)["status"] == "committed"
    three = [{"op": "put", "key": f"k/bob/{n}", "value": 1} for n in (1, 2, 3)]
    verdict = log.send(updates=three)
    assert [(each["index"], each["key"]) for each in verdict["failed"]] == [
        (1, "k/bob/2"), (2, "k/bob/3"),
    ]  # fmt: skip
    assert log.send(updates=[{"op": "add", "key": "k/ann/2", "by": 1}])["status"] == "committed"
    log.declare(keys={"max": 2})  # of all keys: there are more
    assert log.put("k/x", 1) == "keys at most 2"
    assert log.put("k/lonely", 3) is None


@pytest.mark.parametrize(
    "named",
    [
        {"locks": [{"range": {"prefix": "k/"}}]},
        {"checks": [{"range": {"prefix": "k/"}, "count_ge": 0}]},
        {"reads": [{"range": {"start": "k/", "end": "k0"}}]},
    ],
)
def test_a_range_that_is_counted_must_be_named(named: dict[str, Any]) -> None:
    log = Log()
    log.declare(keys={"max": 1})
    put = {"updates": [{"op": "put", "key": "k/1", "value": 1}]}
    raw = json.dumps({"id": "alone", **put}).encode()
    found = json.loads(log.oracle.apply(raw, 0, 90, 1000)[0].value or b"")
    entry = {"check": "lock", "index": 0, "key": "k/", "value": None, "version": 0}
    assert (found["code"], found["reason"]) == ("undeclared-key", "k/")
    assert found["failed"] == [entry]
    raw = json.dumps({"id": "named", **put, **named}).encode()
    found = json.loads(log.oracle.apply(raw, 0, 91, 1000)[0].value or b"")
    assert found["status"] == "committed"
    more = {**named, "updates": [{**put["updates"][0], "key": "k/2"}]}
    raw = json.dumps({"id": "more", **more}).encode()
    found = json.loads(log.oracle.apply(raw, 0, 92, 1000)[0].value or b"")
    assert found["failed"][0]["violated"] == "keys at most 1"


def test_a_procedure_that_scans_has_named_its_range() -> None:
    log = Log()
    text = b"def f(db, key):\n    db.put(key, db.count('k/'))\n"
    log.modules.put(text)
    log.send(deploy=compile_module("m", text).record)
    log.declare(keys={"max": 1})
    for key, violated in (("k/1", None), ("k/2", "keys at most 1")):
        call = {"procedure": "m.f", "args": {"key": key}, "keys": [key],
                "ranges": [{"prefix": "k/"}]}  # fmt: skip
        verdict = log.send(call=call)
        assert (verdict["failed"] or [{"violated": None}])[0]["violated"] == violated


def test_a_constraint_declared_anew_begins_its_index_anew() -> None:
    log = Log()
    log.declare(unique="$")
    assert log.put("k/1", "a") is None
    log.declare(unique="$")
    assert log.put("k/2", "a") is None  # k/1 is from before; `verify` finds it
    stale = next(k for k in log.oracle.state if k.startswith("$unique/"))
    assert log.send(locks=[stale])["status"] == "committed"
    assert stale not in log.oracle.state


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"constrain": {}}, "invalid-transaction"),
        ({"constrain": {"drop": "a", "declare": {}}}, "invalid-transaction"),
        ({"constrain": {"drop": "a"}, "deploy": {}}, "invalid-transaction"),
        ({"constrain": {"drop": "a"}, "call": {"procedure": "m.f"}}, "call-not-alone"),
        ({"locks": ["k/1"]}, "invalid-transaction"),
        ({"locks": [{"range": {}}]}, "invalid-transaction"),
        ({"locks": [{"range": {"prefix": "a"}, "key": "b"}]}, "invalid-transaction"),
        ({"locks": [{"range": {"prefix": ""}}]}, "invalid-key"),
        ({"locks": [{"range": {"prefix": f"{n}"}} for n in range(10_001)]}, "too-many-keys"),
        ({"locks": ["$unique/" + "x" * 480]}, "invalid-key"),
        ({"locks": [f"$unique/{n}" for n in range(10_001)]}, "too-many-keys"),
        ({"constrain": {"declare": {"a": 2**70}}}, "number-range"),
        ({"updates": [{"op": "delete", "key": "$unique/a"}]}, "reserved-key"),
    ],
)
def test_what_a_record_may_say(fields: dict[str, Any], code: str) -> None:
    found = decode(json.dumps({"id": "t", **fields}).encode())
    assert isinstance(found, Rejection)
    assert found.code == code


def test_the_next_attempt_follows_from_the_verdict() -> None:
    log = Log()
    log.declare(unique="$")
    payload = b'{"id":"' + b"x" * 128 + b'","updates":[{"op":"put","key":"k/1","value":1.50}]}'
    found = decode_result(log.oracle.apply(payload, 0, 90, 1000)[0].value or b"")
    once, again = (relocked("x" * 128, payload, found) for _ in range(2))
    assert once is not None
    assert once == again
    assert len(once[0]) <= limits.ID_BYTES_MAX
    assert b'"value":1.50' in once[1]


def test_locks_are_kept_and_added() -> None:
    entries = [
        {"check": "lock", "index": 0, "key": key, "value": None, "version": 0}
        for key in ("$unique/b", "z/", "$unique/a", "a/", "z/")
    ]
    raw = {"id": "t", "seq": 1, "ts_ms": 1, "status": "aborted", "reads": {}, "failed": entries,
           "code": "undeclared-key", "source": {"partition": 0, "offset": 0}}  # fmt: skip
    known = ["$unique/c", {"range": {"start": "a", "end": "b"}}]
    again = relocked("t", json.dumps({"id": "t", "locks": known}).encode(),
                     decode_result(json.dumps(raw).encode()))  # fmt: skip
    assert again is not None
    assert json.loads(again[1])["locks"] == [
        "$unique/a", "$unique/b", "$unique/c", known[1],
        {"range": {"prefix": "a/"}}, {"range": {"prefix": "z/"}},
    ]  # fmt: skip
