"""Digests: the same whatever the batches, different when a value is, held against the state."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from jsonschema_rs import Draft202012Validator

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.digest import DigestState, close, fold, item_lanes, outcome_sums, total
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.memory import MemoryBlobs, MemoryValues
from streamydb.key_processor.progress import ShardDigests
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.pipeline.standby.agreement import Agreement
from streamydb.records import schemas

ABSENT = (p.ABSENT, 0, 0, b"")


def items(rows: dict[bytes, tuple[int, int, int, bytes]]) -> WrittenValues:
    """Key -> (tag, number, version, text)."""
    columns = list(zip(*rows.values(), strict=True))
    return WrittenValues(
        np.array(columns[0], np.uint8),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.int64),
        Ragged.of(list(rows)),
        Ragged.of(list(columns[3])),
    )


def lanes(*row: object) -> list[int]:
    key, tag, number, version, text = row
    table = items({key: (tag, number, version, text)})  # type: ignore[dict-item]
    return list(item_lanes(table)[0].tolist())


def test_key_version_and_value_matter_and_nothing_else() -> None:
    same = lanes(b"k", p.INT, 5, 7, b"")
    assert same == lanes(b"k", p.INT, 5, 7, b"ignored")
    others = [
        lanes(b"l", p.INT, 5, 7, b""), lanes(b"k", p.INT, 6, 7, b""),
        lanes(b"k", p.INT, -5, 7, b""),
        lanes(b"k", p.INT, 5, 8, b""), lanes(b"k", p.OPAQUE, 5, 7, b"5"),
        lanes(b"k", p.OPAQUE, 0, 7, b'"5"'),
    ]  # fmt: skip
    both = [same, *others]
    assert len({low for low, _ in both}) == len({high for _, high in both}) == len(both)
    assert lanes(b"k", p.ABSENT, 5, 7, b"") == [0, 0]


def test_the_hash_never_changes() -> None:
    """Digests are compared between releases and kept for ever."""
    assert [f"{lane:016x}" for lane in lanes(b"acct/1", p.INT, 100, 41, b"")] == [
        "803ca5598cc5b117", "77277d50d3dc4701",
    ]  # fmt: skip
    text = lanes("ü".encode(), p.OPAQUE, 0, 3, b'{"a":[1.5]}')
    assert [f"{lane:016x}" for lane in text] == ["7d5dbe2862018eb2", "d0512f57255205b6"]


def test_intervals_end_when_all_of_them_is_resolved() -> None:
    state = DigestState(10)
    fold(state, 0, 1, 2, 3)
    fold(state, 1, 10, 20)
    assert close(state, 0, 9) == []
    first = close(state, 0, 15)
    schema = schemas.schemas()["digest"]
    Draft202012Validator(schema).validate(msgspec.to_builtins(first[0]))
    assert [(d.seq, d.state, d.outcomes) for d in first] == [(10, f"{2:016x}{1:016x}", f"{3:016x}")]
    assert total(state) == (11, 22)
    fold(state, 0, 5, 5)
    found = close(state, 0, 40)
    assert [d.seq for d in found] == [20, 30, 40]
    assert {d.state for d in found} == {f"{27:016x}{16:016x}"}


def test_outcomes_belong_to_the_interval_of_their_seq() -> None:
    sums = outcome_sums(np.array([10, 11, 12]), Ragged.of([b"a", b"b", b"a"]), 10)
    single = outcome_sums(np.array([1, 11]), Ragged.of([b"a", b"b"]), 10)
    assert sums[0] == single[0]
    assert sums[1] == (single[0] + single[1]) % 2**64


def values() -> ShardValues:
    """Two keys, applied in two plans."""
    found = ShardValues(ValuesState(), MemoryBlobs(), MemoryValues())
    found.apply(items({b"a": (p.INT, 1, 1, b""), b"b": (p.OPAQUE, 0, 2, b'"x"')}))
    found.apply(items({b"a": (p.INT, 2, 3, b"")}))
    return found


@pytest.mark.fault(21, "a state of a release without digests", "taken over")
def test_a_state_without_digests_begins_with_what_it_holds_and_damage_is_found() -> None:
    digests = ShardDigests(None, 100, 0, values(), 3)
    assert digests.state.told == 1
    digests.audit("a test wants it")
    fold(digests.state, 1, 1, 0)
    with pytest.raises(InvariantViolation, match=r"shard 0 .*damaged \(audited because of it\)"):
        digests.audit("of it")


def test_single_writes_are_folded_in_as_they_meet_the_state() -> None:
    held = values()
    digests = ShardDigests(None, 100, 0, held, 3)
    before = items({b"a": (p.INT, 2, 3, b"")})
    after = items({b"a": ABSENT})
    none = Verdicts.none()
    digests.add_writes(before, after, [101], none)
    held.apply(after)
    digests.audit("of a delete")
    wrong = items({b"b": (p.OPAQUE, 0, 2, b'"damaged"')})
    later = items({b"b": (p.INT, 9, 102, b"")})
    digests.add_writes(wrong, later, [102], none)
    held.apply(later)
    with pytest.raises(InvariantViolation, match="damaged"):
        digests.audit("of what was met")


def test_pipelines_that_differ_are_named_with_shard_and_seq() -> None:
    agreement = Agreement(10, shards=0)
    one = b'{"seq":10,"shard":1,"interval":10,"state":"aa","outcomes":"bb"}'
    two = one.replace(b"aa", b"ac")
    assert agreement.take(b"1/10/first", one, live=True) is None
    assert agreement.take(b"1/10/first", one, live=True) is None
    assert agreement.take(b"1/10/second", one, live=True) is None
    found = agreement.take(b"1/10/second", two, live=True)
    assert str(found) == (
        "digests of shard 1 at seq 10 differ: pipeline first has state aa, outcomes bb; "
        "pipeline second has state ac, outcomes bb"
    )
    divided = one.replace(b"aa", b"ae").replace(b'"outcomes"', b'"shards":4,"outcomes"')
    assert agreement.take(b"1/10/divided", divided, live=True) is None
    other = one.replace(b'"interval":10', b'"interval":5').replace(b"aa", b"ad")
    assert agreement.take(b"1/10/third", other, live=True) is None


def test_old_differences_have_been_dealt_with() -> None:
    one = b'{"seq":10,"shard":1,"interval":10,"state":"aa","outcomes":"bb"}'
    two = one.replace(b"aa", b"ac")
    agreement = Agreement(10, shards=0)
    assert agreement.take(b"1/10/damaged", one, live=False) is None
    assert agreement.take(b"1/10/sound", two, live=False) is None
    assert agreement.take(b"1/10/rebuilt", two, live=True) is None
    assert agreement.take(b"1/10/rebuilt", one, live=True) is None
    assert agreement.take(b"1/10/rebuilt", one.replace(b"aa", b"ad"), live=True) is not None
