"""The kernel that reads plain records, held against the careful path over odd and broken ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from simulator.workload import Deadlines, Workload
from streamydb.client.session import new_id
from streamydb.facade.conditions import Conditions, KeyConditions
from streamydb.facade.payloads import conditional_write
from streamydb.frames.record_rows import CompiledRecords
from streamydb.frames.table import Ragged, Texts
from streamydb.limits import ID_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from streamydb.parser import compile as compiler
from streamydb.parser import scan as scanner
from streamydb.parser.call_reader import CALL_KEYS_MAX
from streamydb.parser.check_reader import CHECKS_MAX
from streamydb.parser.scan import Scanned, scan
from streamydb.parser.update_reader import UPDATES_MAX
from streamydb.records.deadline import with_deadline

ODD = b'{}[],:"\\0123456789.-eE axy \n\x00\x7f\x80'
TOKENS = (
    '"id" "op" "key" "by" "min" "max" "value" "add" "put" "next_id" "reads" "updates" '
    '"deadline_ms" "checks" "version" "exists" "eq" '
    "{ } [ ] , : "
    '1 -1 0 -0 "x" "y" 12345678901234567890 1.5 null true "" "é"'
).split()
NUMBERS = (1, -5, 0, 2**63 - 1, -(2**63), 10**18, 10**17, "v", "é", 1.5, None, True, [1])


def compiled(values: list[bytes | None]) -> CompiledRecords:
    """Compiled as records of two partitions."""
    n = len(values)
    return compiler.compile_records(
        np.arange(n, dtype=np.int32) % 2, np.arange(n), np.arange(n), values
    )


def carefully(values: list[bytes | None]) -> CompiledRecords:
    """Compiled as if no record were plain."""

    def nothing(texts: Ragged) -> Scanned:
        return scan(Ragged.of([b""] * len(texts)))

    with mock.patch.object(compiler, "scan", nothing):
        return compiled(values)


def assert_alike(values: list[bytes | None]) -> None:
    left, right = compiled(values).flatten(), carefully(values).flatten()
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype, name
        assert array.tobytes() == right[name].tobytes(), (name, values)


def damaged(rng: random.Random, value: bytes | None) -> bytes:
    data = bytearray(value or b"")
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(data) + 1)
        kind = rng.random()
        if kind < 0.5:
            data.insert(at, rng.choice(ODD))
        elif data[at : at + 1]:
            data[at : at + 1] = b"" if kind < 0.8 else bytes([rng.choice(ODD)])
    return bytes(data)


def shuffled(rng: random.Random, members: dict[str, Any]) -> dict[str, Any]:
    return dict(rng.sample(list(members.items()), len(members)))


COMPARATORS = ("version", "exists", "eq", "ne", "lt", "le", "gt", "ge")


def checked(rng: random.Random) -> list[dict[str, Any]]:
    """Some checks, mostly of one comparison each."""
    checks = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 17])):
        check: dict[str, Any] = {"key": rng.choice(["a", "b", "c", "$s", *[""] * rng.randrange(2)])}
        for name in rng.sample(COMPARATORS, rng.choice([1, 1, 1, 1, 1, 2, 0])):
            numbers = [True, False] if name == "exists" else [0, 1, 5]
            check[name] = rng.choice(numbers if rng.random() < 0.8 else NUMBERS)
        if rng.random() < 0.03:
            check["range"] = {"prefix": "a"}
        checks.append(shuffled(rng, check))
    return checks


def structured(rng: random.Random) -> bytes:
    """An object of the right kind with random members, some of them wrong."""
    updates = []
    for _ in range(rng.choice([0, 1, 2, 3, 17])):
        op = rng.choice(["put", "add", "delete", "max", "min", "next_id", "append"])
        update: dict[str, Any] = {"op": op, "key": rng.choice(["a", "b", "c", "d", ""])}
        for name in ("by", "min", "max", "value"):
            if rng.random() < 0.3:
                update[name] = rng.choice(NUMBERS)
        updates.append(shuffled(rng, update))
    reads = rng.sample(["a", "b", "e"], rng.randrange(4)) + rng.choice([[], ["a"]])
    record: dict[str, Any] = {"id": rng.choice(["x", "é", ""]), "updates": updates, "reads": reads}
    if rng.random() < 0.5:
        record["deadline_ms"] = rng.choice([*NUMBERS, 1, 1_700_000_000_000])
    if rng.random() < 0.5:
        record["checks"] = checked(rng)
    if rng.random() < 0.3:
        record.pop(rng.choice(list(record)))
    separators = rng.choice([(",", ":"), (" , ", " : ")])
    return json.dumps(shuffled(rng, record), separators=separators).encode()


CALL_TOKENS = (
    '"id" "call" "procedure" "args" "keys" "reads" "m.f" "m.f.g" "ranges" "batch" "updates" "a" '
    '{ } [ ] , : "k" "$flows/m" 1 -0 1e2 9223372036854775808 true false null "é" ""'
).split()
VALUES: tuple[Any, ...] = (
    1, -5, 10**18, 10**17, 2**64, 1.5, True, None, "text", "é", "a\\b", [], {}, [1, [2, "x"]],
    {"b": {"c": [True]}, "a": 1},
)  # fmt: skip


def deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 3 else {"x": value}
    return value


def called(rng: random.Random) -> bytes:
    """A record with a call, some of it wrong."""
    names = ["a", "b", "m", "k" * 70, "$flows/m", "$procedures/m", "é", ""]
    weights = [9, 9, 9, 9, 1, 1, 1, 1]

    def some(most: int) -> list[str]:
        return rng.choices(names, weights, k=rng.randrange(most))

    args: Any = {name: rng.choice(VALUES) for name in rng.sample(["x", "y", "z"], rng.randrange(4))}
    if rng.random() < 0.1:
        args = rng.choice([[], None, 1, {"d": deep(rng.choice([3, 15, 16, 61, 62, 63, 64]))}])
    procedures = ["m.f", "_m1.f_2", "m", "m.f.g", "1m.f", "m.", ".f", "m f.g", f"{'m' * 65}.f"]
    call: dict[str, Any] = {"procedure": rng.choices(procedures, [30, 9] + [1] * 7)[0]}
    call |= {"args": args, "keys": some(6), "reads": some(4)}
    for name in ("args", "keys", "reads", "procedure"):
        if rng.random() < 0.08:
            del call[name]
    if rng.random() < 0.1:
        call |= rng.choice([{"ranges": []}, {"ranges": [{"prefix": "a"}]}, {"other": 1}])
    record: dict[str, Any] = {"id": rng.choice(["x", "y", "$flow/1/1", ""]), "call": call}
    others: list[dict[str, Any]] = [{"reads": some(3)}, {"deadline_ms": 5}, {"updates": []}]
    others += [{"checks": []}, {"checks": [{"key": "a", "version": 1}]}]
    extra = rng.choice([{}, {}, *others])
    separators = rng.choice([(",", ":"), (" , ", " : ")])
    made = shuffled(rng, record | extra | {"call": shuffled(rng, call)})
    return json.dumps(made, separators=separators, ensure_ascii=rng.random() < 0.5).encode()


MAKERS: dict[str, Callable[[random.Random], bytes | None]] = {
    "calls": called,
    "damaged calls": lambda rng: damaged(rng, called(rng)),
    "tokens of calls": lambda rng: "".join(rng.choices(CALL_TOKENS, k=rng.randrange(25))).encode(),
    "structured": structured,
    "damaged": lambda rng: damaged(rng, structured(rng)),
    "tokens": lambda rng: "".join(rng.choices(TOKENS, k=rng.randrange(25))).encode(),
}


@pytest.mark.parametrize("kind", sorted(MAKERS))
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_read_is_what_the_careful_path_reads(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    assert_alike([MAKERS[kind](rng) for _ in range(400)])


@pytest.mark.parametrize("seed", range(4))
def test_the_simulators_records(seed: int) -> None:
    rng = random.Random(seed)
    work = Workload(rng, ["k0", "k1", "é/\n"], 0.2, 0.1, 0.5)
    work.deadlines = Deadlines(rng, lambda: 1_700_000_000_000, 0.5, 0.2)
    values = [work.record() for _ in range(200)]
    assert_alike([*values, *[damaged(rng, value) for value in values]])


@pytest.mark.parametrize(
    ("record", "plain"),
    [
        ('{"id":"a","updates":[{"op":"add","key":"k","by":-1,"min":0}]}', True),
        (' {"updates" : [ ] , "id" : "a"}\n', True),
        ('{"id":"a","reads":["k","k","l"]}', True),
        ('{"id":"a","updates":[{"value":"text","key":"k","op":"put"}]}', True),
        ('{"id":"a","updates":[{"op":"next_id","key":"k"}],"reads":["k"]}', True),
        ('{"id":"a","updates":[{"op":"add","key":"k","by":1},{"op":"delete","key":"k"}]}', False),
        ('{"id":"a","deadline_ms":1700000000000}', True),
        ('{"deadline_ms" : 1 , "updates":[], "id":"a"}', True),
        ('{"id":"a","deadline_ms":0}', False),
        ('{"id":"a","deadline_ms":-1}', False),
        ('{"id":"a","deadline_ms":"1"}', False),
        ('{"id":"a","deadline_mz":1}', False),
        ('{"id":"a","deadline_ms":1,"deadline_ms":2}', False),
        ('{"id":"a","id":"b"}', False),
        ('{"id":"a"} x', False),
        ('{"id":"a\\u0041"}', False),
        ('{"id":"a","updates":[{"op":"add","key":"k","by":01}]}', False),
        ('{"id":"a","updates":[{"op":"add","key":"k","by":1,"value":2}]}', False),
        ('{"id":"a","asserts":{"k":1}}', False),
        ("", False),
        ('{"id":"a","checks":[],"updates":[{"op":"put","key":"k","value":1}]}', True),
        ('{"checks" : [ { "key" : "k" , "version" : 0 } ] , "id":"a"}', True),
        ('{"id":"a","checks":[{"exists":false,"key":"k"},{"key":"k","exists":true}]}', True),
        ('{"id":"a","checks":[{"key":"k","eq":"t"},{"key":"k","ne":-5},{"key":"l","le":5}]}', True),
        ('{"id":"a","checks":[{"key":"$k","version":1}]}', True),
        ('{"id":"a","checks":[{"key":"k","version":-1}]}', False),
        ('{"id":"a","checks":[{"key":"k","version":"1"}]}', False),
        ('{"id":"a","checks":[{"key":"k","exists":1}]}', False),
        ('{"id":"a","checks":[{"key":"k","exists":trueish}]}', False),
        ('{"id":"a","checks":[{"key":"k","exists":true,"version":1}]}', False),
        ('{"id":"a","checks":[{"key":"k","key":"l","version":1}]}', False),
        ('{"id":"a","checks":[{"key":"k","eq":null}]}', False),
        ('{"id":"a","checks":[{"key":"k","lt":"t"}]}', False),
        ('{"id":"a","checks":[{"key":"k"}]}', False),
        ('{"id":"a","checks":[{"version":1}]}', False),
        ('{"id":"a","checks":[{"key":"","version":1}]}', False),
        ('{"id":"a","checks":[{"key":"k","version":1},]}', False),
        ('{"id":"a","checks":[],"checks":[]}', False),
        ('{"id":"a","checks":[],"call":{"procedure":"m.f"}}', True),
        ('{"id":"a","checks":[{"key":"k","version":1}],"call":{"procedure":"m.f"}}', False),
        ('{"id":"a","call":{"procedure":"m.f"}}', True),
        ('{"call" : { "args" : { "x" : [ ] , "y" : { } } , "procedure" : "m.f" },"id":"a"}', True),
        ('{"id":"a","call":{"procedure":"m.f","keys":["m","m"],"reads":["m"]}}', True),
        ('{"id":"a","call":{"procedure":"m.f","args":{"x":[1,-2,true,null,"t",{"y":[]}]}}}', True),
        ('{"id":"a","call":{"procedure":"m.f","args":{"x":1.0}}}', False),
        ('{"id":"a","call":{"procedure":"m.f","args":{"x":[1,]}}}', False),
        ('{"id":"a","call":{"procedure":"m.f","args":{"x":{"y"}}}}', False),
        ('{"id":"a","call":{"procedure":"m.f","args":[]}}', False),
        ('{"id":"a","call":{"procedure":"m.f","args":{}}', False),
        ('{"id":"a","call":{"procedure":"m.f","keys":["$flows/m"]}}', False),
        ('{"id":"a","call":{"procedure":"m.f","reads":["$procedures/m"]}}', False),
        ('{"id":"a","call":{"procedure":"m.f","ranges":[]}}', False),
        ('{"id":"a","call":{"procedure":"m.f","args":{},"args":{}}}', False),
        ('{"id":"a","call":{"args":{}}}', False),
        ('{"id":"a","call":{"procedure":"m.f"},"updates":[]}', False),
    ],
)
def test_what_is_plain(record: str, plain: bool) -> None:  # noqa: FBT001
    value = record.encode()
    assert scan(Ragged.of([value])).plain.tolist() == [plain]
    assert_alike([value])


def test_as_many_keys_of_a_call_as_there_is_room_for_and_one_more() -> None:
    def call(keys: int, reads: int) -> bytes:
        given = {"keys": [f"k{i}" for i in range(keys)], "reads": [f"r{i}" for i in range(reads)]}
        return json.dumps({"id": "a", "call": {"procedure": "m.f", **given}}).encode()

    most = CALL_KEYS_MAX
    values = [call(most, most), call(most + 1, 0), call(0, most + 1), call(most, 0)]
    assert scan(Ragged.of(values)).plain.tolist() == [True, False, False, True]
    assert_alike([*values])


def test_the_writes_of_a_facade_are_plain() -> None:
    """With all conditions that a request may have, and the deadline that it gets."""
    of_keys = KeyConditions("k", Conditions())
    checks: list[list[dict[str, Any]]]
    checks = [[], [of_keys.check(7)], [of_keys.present()], [of_keys.absent()]]
    values = [
        with_deadline(conditional_write(new_id(), "k", value, check), 1_700_000_000_000)
        for value in (b"1", b'"text"', None)
        for check in checks
    ]
    assert scan(Ragged.of(values)).plain.all()
    assert_alike([*values])


def test_as_many_checks_as_there_is_room_for_and_one_more() -> None:
    def checked(count: int) -> bytes:
        checks = [{"key": f"k{i}", "version": i} for i in range(count)]
        updates = [{"op": "next_id", "key": f"k{i}"} for i in range(UPDATES_MAX)]
        record = {"id": "a", "checks": checks, "reads": ["k1", "r", "k1"], "updates": updates}
        return json.dumps(record).encode()

    values = [checked(CHECKS_MAX), checked(CHECKS_MAX + 1), checked(CHECKS_MAX)]
    assert scan(Ragged.of(values)).plain.tolist() == [True, False, True]
    assert_alike([*values])


def test_limits_at_n_and_one_more() -> None:
    def put(id_: int, key: int, value: int) -> bytes:
        update = {"op": "put", "key": "k" * key, "value": "v" * value}
        return json.dumps({"id": "i" * id_, "updates": [update]}).encode()

    def check(key: int, value: int) -> bytes:
        return json.dumps({"id": "a", "checks": [{"key": "k" * key, "eq": "v" * value}]}).encode()

    longest = put(ID_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX - 2)
    beyond = [
        put(ID_BYTES_MAX + 1, 1, 1),
        put(1, KEY_BYTES_MAX + 1, 1),
        put(1, 1, VALUE_BYTES_MAX - 1),
        check(KEY_BYTES_MAX + 1, 1),
        check(1, VALUE_BYTES_MAX - 1),
    ]
    allowed = [longest, check(KEY_BYTES_MAX, VALUE_BYTES_MAX - 2)]
    assert scan(Ragged.of([*allowed, *beyond])).plain.tolist() == [True] * 2 + [False] * 5
    assert_alike([*allowed, *beyond])


def test_one_kernel_reads_what_comes_from_arrow_and_what_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else Spark's workers would compile for seconds what the warm-up has compiled already."""
    kernel, given = scanner._scan, []

    def noted(texts: Texts, *rest: Any) -> Any:
        given.append(texts.data.flags.writeable)
        return kernel(texts, *rest)

    monkeypatch.setattr(scanner, "_scan", noted)
    values = Ragged.of([b'{"id":"a","reads":["k"]}'])
    from_arrow = Ragged(np.frombuffer(values.data.tobytes(), np.uint8), values.offsets)
    assert values.data.flags.writeable
    assert [scan(each).plain.tolist() for each in (values, from_arrow)] == [[True], [True]]
    assert given == [False, False]
