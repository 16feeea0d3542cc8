"""Messages and tables: what is made of their fields, and that other blocks are refused."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import ClassVar

import msgspec
import numpy as np
import pytest

from streamydb.errors import InvariantViolation, RecordError
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.messages import Audit, DigestRecords, ResolvedRecord, Role, ValueSizes
from streamydb.frames.plans import PlanName
from streamydb.frames.protocol import FORMAT, BlockReader, Message
from streamydb.frames.table import Array, ChildRows, ColumnTable, Ragged
from tests.support.seeds import seeds


class Leaf(ColumnTable, frozen=True):
    number: Array
    name: Ragged


class Branch(ColumnTable, frozen=True):
    offset: Array
    mark: Array | None
    title: Ragged
    leaves: ChildRows[Leaf]
    more: ChildRows[Leaf] | None


class Item(msgspec.Struct, array_like=True):
    number: int


class Parcel(Message, frozen=True):
    KIND: ClassVar[str] = "parcel"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    plan: PlanName
    to: str
    items: list[Item]
    tree: Branch
    other: Leaf | None = None
    note: bytes = b""
    at: int = -1


def leaves(dice: random.Random, rows: int) -> tuple[Array, Leaf]:
    counts = np.array([dice.randrange(3) for _ in range(rows)], np.int64)
    n = int(counts.sum())
    names = [b"x" * dice.randrange(4) for _ in range(n)]
    return counts, Leaf(np.array([dice.randrange(9) for _ in range(n)]), Ragged.of(names))


def branches(dice: random.Random, *, marked: bool) -> Branch:
    n = dice.randrange(6)
    more = ChildRows(*leaves(dice, n)) if dice.random() < 0.5 else None
    return Branch(
        np.arange(n),
        np.arange(n, dtype=np.uint8) if marked else None,
        Ragged.of([b"t%d" % i for i in range(n)]),
        ChildRows(*leaves(dice, n)),
        more,
    )


def rows(table: ColumnTable) -> list[dict[str, object]]:
    """A table row by row, the plain way."""
    found: list[dict[str, object]] = [{} for _ in range(len(table))]
    for name in table.__struct_fields__:
        value = getattr(table, name)
        if isinstance(value, ChildRows):
            own, at = rows(value.rows), 0
            for row, count in zip(found, value.counts.tolist(), strict=True):
                row[name], at = own[at : at + count], at + count
        elif value is not None:
            for row, each in zip(found, value.tolist(), strict=True):
                row[name] = each
        else:
            for row in found:
                row[name] = [] if name == "more" else None
    return found


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_what_is_done_with_a_table_is_done_with_its_rows(seed: int) -> None:
    dice = random.Random(seed)
    marked = dice.random() < 0.5
    parts = [branches(dice, marked=marked) for _ in range(dice.randint(1, 4))]
    whole, plain = Branch.concat(parts), [row for part in parts for row in rows(part)]
    assert rows(whole) == plain
    index = [dice.randrange(len(plain)) for _ in range(5)] if plain else []
    assert rows(whole.take(np.array(index, np.int64))) == [plain[i] for i in index]
    start = dice.randint(0, len(plain))
    end = dice.randint(start, len(plain))
    part = whole.part(start, end)
    assert rows(part) == plain[start:end]
    assert rows(part.part(0, end - start)) == plain[start:end]
    stored = pack(part.flatten("a."))
    assert rows(Branch.unflatten(unpack(stored)[1], "a.")) == plain[start:end]
    assert next(iter(part.flatten())) == "off", "as blocks of all releases name it"


def parcel(dice: random.Random) -> Parcel:
    return Parcel(
        PlanName(dice.randrange(9), "life", 1, 2, "layout"),
        "é",
        [Item(3), Item(4)],
        branches(dice, marked=True),
        Leaf(*leaves_only(dice)) if dice.random() < 0.5 else None,
        dice.choice([b"", b"note"]),
        dice.choice([-1, 7]),
    )


def leaves_only(dice: random.Random) -> tuple[Array, Ragged]:
    _, found = leaves(dice, 3)
    return found.number, found.name


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_a_message_comes_back_from_its_block(seed: int) -> None:
    sent = parcel(random.Random(seed))
    found = BlockReader(Parcel, Role).read(sent.block())
    assert isinstance(found, Parcel)
    assert found.block() == sent.block()
    assert (found.plan, found.to, found.note, found.at) == (sent.plan, sent.to, sent.note, sent.at)
    assert [item.number for item in found.items] == [3, 4]
    assert rows(found.tree) == rows(sent.tree)
    assert (found.other is None) is (sent.other is None)
    if found.other is not None and sent.other is not None:
        assert rows(found.other) == rows(sent.other)


def test_the_bytes_of_blocks_are_pinned() -> None:
    """The bytes of each kind are a contract."""
    cases: list[tuple[Message, bytes]] = [
        (
            Role("i", leads=True, covered=5),
            pack({}, incarnation="i", leads=True, covered=5, kind="role", format=FORMAT),
        ),
        (
            Audit("i", "why", at=3),
            pack({}, incarnation="i", reason="why", kind="audit", format=FORMAT, at=3),
        ),
        (
            ValueSizes("i", 1, 0, 2, b"s"),
            pack(
                {},
                incarnation="i",
                shard=1,
                chunk=0,
                chunks=2,
                sizes=b"s",
                kind="sizes",
                format=FORMAT,
            ),
        ),
        (
            ResolvedRecord.of(b"{}", silent=False),
            pack(
                {"value": np.frombuffer(b"{}", np.uint8)},
                kind="resolved",
                format=FORMAT,
                silent=False,
            ),
        ),
        (
            DigestRecords.of([(b"k", b"v")]),
            pack(
                {
                    "key$": np.frombuffer(b"k", np.uint8),
                    "key#": np.array([0, 1]),
                    "value$": np.frombuffer(b"v", np.uint8),
                    "value#": np.array([0, 1]),
                },
                kind="digests",
                format=FORMAT,
            ),
        ),
    ]
    for message, block in cases:
        assert message.block() == block
        assert BlockReader(type(message)).read(block).block() == block


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ({"kind": "other"}, InvariantViolation),
        ({"format": FORMAT + 5}, InvariantViolation),
        ({"covered": "five"}, RecordError),
        ({"incarnation": 3}, RecordError),
        ({"leads": None}, RecordError),
    ],
)
def test_another_block_is_refused(damage: dict[str, object], error: type[Exception]) -> None:
    header = {**Role("i", leads=True, covered=5).header(), **damage}
    with pytest.raises(error):
        BlockReader(Role).read(pack({}, **header))


def test_a_block_that_lacks_something_is_refused() -> None:
    header = Role("i", leads=True, covered=5).header()
    del header["covered"]
    with pytest.raises(RecordError, match="covered"):
        BlockReader(Role).read(pack({}, **header))
    told = DigestRecords.of([(b"k", b"v")])
    arrays = {path: array for path, array in told.arrays().items() if path != "value$"}
    with pytest.raises(RecordError, match="value"):
        BlockReader(DigestRecords).read(pack(arrays, **told.header()))


def classes(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """All public classes of production below one."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("streamydb.") and not each.__name__.startswith("_"):
            yield each
        yield from classes(each)


def said_of(kind: type[msgspec.Struct]) -> str:
    """The docstrings of a class, of its bases, and of the classes to which these refer."""
    known = {each.__name__: each for root in (Message, ColumnTable) for each in classes(root)}
    said, asked = dict[type, str](), [kind]
    while asked:
        each = asked.pop()
        if each not in said:
            said[each] = each.__doc__ or ""
            referred = re.findall(r"`(?:[\w.]+\.)?(\w+)`", said[each])
            asked += [known[name] for name in referred if name in known]
            asked += [base for base in each.__mro__ if base in known.values()]
    return " ".join(said.values())


@pytest.mark.parametrize("kind", [*classes(Message), *classes(ColumnTable)])
def test_every_field_is_explained(kind: type[msgspec.Struct]) -> None:
    said = said_of(kind)
    unsaid = [field for field in kind.__struct_fields__ if not re.search(rf"\b{field}\b", said)]
    assert not unsaid, f"{kind.__name__} does not say what these are"


def test_each_kind_of_message_has_its_own_name() -> None:
    kinds = [getattr(kind, "KIND", "") for kind in classes(Message)]
    assert len(set(kinds)) == len(kinds) >= 14
