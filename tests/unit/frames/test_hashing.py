"""Hashes: golden values, which must never change, and where keys and blocks go.

`streamydb.frames.hashing` decides which shard owns a key and which transactions are repetitions:
the state of every database in the world depends on it. If a golden value here fails, the change is
wrong, not the test. Spark's hash is not ours to change either: its values were computed by
`org.apache.spark.unsafe.hash.Murmur3_x86_32.hashInt` of Spark 4.2.0.
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.frames.hashing import (
    ID_SEED,
    KEY_SEED,
    PAYLOAD_SEED,
    hash_bytes,
    hash_ragged,
    shard_of,
)
from streamydb.frames.table import Ragged
from streamydb.limits import PARTITIONS_MAX, SHARDS_MAX
from streamydb.pipeline.arrow_batches import spark_hash, tokens

MASK = 2**64 - 1
GOLDEN = [
    (b"", 0x0, 0xE220A8397B1DCDAF, 0x68850AC74E2E5A26),
    (b"a", 0x2DE502BEFCC1D21B, 0x22AFAD8FEE6937AA, 0x1FFE662908261105),
    (b"abcdefg", 0x50E071393BA200B0, 0xAE62F83EF3DB352B, 0x678FD12B78670877),
    (b"abcdefgh", 0xAB08226EA53AE34, 0x48698846F89C6A09, 0xE88F7DE8671A1A21),
    (b"abcdefghi", 0x9AF64060AB5A32AB, 0x6DDEA6BF3C484356, 0x69D2AF33530327B2),
    (b"acct/1", 0xCBF7C130D387AB74, 0x3BD263CF433D6E22, 0x3D84835D4440C715),
    ("é😀".encode(), 0x8BED24F373AE82AC, 0x7BAFE89C09729361, 0xAD03E856E6AED342),
    (bytes(range(256)), 0x66C355EB6CAA8DB3, 0x8A5A0BBDED90D3A3, 0xA43945F08DD4CC0),
    (b"\0" * 16, 0xC6686064FF7F2A86, 0x41BC14376FB5E46, 0xFA60F65302C7F5EE),
]
"""Bytes, and their hashes with the seeds of keys, ids and payloads."""

SPARK = [
    (0, 42, 933211791), (1, 42, -559580957), (2, 42, 1765031574), (3, 42, -1823081949),
    (7, 42, 1079293707), (42, 42, 29417773), (63, 42, -974635281), (1000, 42, -14577491),
    (123456789, 42, -598405280), (-1, 42, -1604776387), (-559580957, 42, 2142172440),
    (2**31 - 1, 42, 133916647), (-(2**31), 42, 723455942), (0, 0, 593689054),
    (1, 0, -68075478), (42, 0, -1134849565), (-1, 0, 1982413648), (2**31 - 1, 0, -1653689534),
    (-(2**31), 0, -1718298732),
]  # fmt: skip
"""An INT, a seed, and Spark's hash."""


def mix(h: int) -> int:
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & MASK
    return h ^ (h >> 31)


def plainly(value: bytes, seed: int) -> int:
    """The hash as its definition says, with Python's integers."""
    h = seed ^ (len(value) * 0x9E3779B97F4A7C15 & MASK)
    whole = len(value) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", value[:whole]):
        h = mix(h ^ word) * 0xD6E8FEB86659FD93 & MASK
    rest = value[whole:]
    return mix(h ^ int.from_bytes(rest, "little") ^ (len(rest) << 60) & MASK)


@pytest.mark.fault(21, "hashes kept from the first release", "unchanged")
@pytest.mark.parametrize(("value", "key", "id_", "payload"), GOLDEN)
def test_golden_values_never_change(value: bytes, key: int, id_: int, payload: int) -> None:
    assert hash_bytes(value) == hash_bytes(value, KEY_SEED) == key
    assert hash_bytes(value, ID_SEED) == id_
    assert hash_bytes(value, PAYLOAD_SEED) == payload


def test_golden_shards_never_change() -> None:
    keys = [b"acct/%d" % i for i in range(16)]
    assert [shard_of(key, 8) for key in keys] == [6, 4, 2, 6, 3, 7, 3, 1, 2, 1, 1, 4, 7, 4, 1, 3]
    assert {shard_of(key, 1) for key in keys} == {0}
    assert [shard_of(key, 8) for key in keys] == [hash_bytes(key) % 8 for key in keys]


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, MASK))
def test_one_by_one_and_all_at_once_are_what_the_definition_says(
    values: list[bytes], seed: int
) -> None:
    found = hash_ragged(Ragged.of(values), seed)
    assert found.dtype == np.uint64
    assert found.tolist() == [hash_bytes(value, seed) for value in values]
    assert found.tolist() == [plainly(value, seed) for value in values]


def test_the_hash_sees_only_the_bytes_of_its_element() -> None:
    values = [b"before", b"12345678", b"", b"x", b"after that"]
    whole = Ragged.of(values)
    middle = Ragged(whole.data, whole.offsets[1:5])
    assert hash_ragged(middle).tolist() == [hash_bytes(value) for value in values[1:4]]
    assert hash_bytes(b"x") != hash_bytes(b"x\0") != hash_bytes(b"x\0\0")
    assert hash_bytes(b"1234567\0") != hash_bytes(b"1234567")


@pytest.mark.parametrize("shards", [2, 3, 8, 10, SHARDS_MAX])
@pytest.mark.parametrize("form", ["acct/%d", "%d", "user:%08d:profile", "%032x"])
def test_keys_spread_over_the_shards(form: str, shards: int) -> None:
    """Each shard's load lies within five standard deviations of a fair one."""
    n = 200 * shards
    keys = Ragged.of([(form % i).encode() for i in range(n)])
    loads = np.bincount((hash_ragged(keys) % np.uint64(shards)).astype(np.int64), minlength=shards)
    assert loads.sum() == n
    deviation = (n / shards * (1 - 1 / shards)) ** 0.5
    assert np.abs(loads - n / shards).max() < 5 * deviation


def test_every_bit_of_the_input_moves_half_of_the_output() -> None:
    rng = random.Random(1)
    for length in (1, 7, 8, 9, 20):
        moved = []
        for _ in range(20):
            value = rng.randbytes(length)
            bit = rng.randrange(8 * length)
            other = (int.from_bytes(value, "little") ^ 1 << bit).to_bytes(length, "little")
            moved.append((hash_bytes(value) ^ hash_bytes(other)).bit_count())
        assert 26 < sum(moved) / len(moved) < 38
        assert min(moved) > 8


def test_no_two_of_many_keys_meet() -> None:
    keys = Ragged.of([b"k%d" % i for i in range(50_000)])
    assert len(np.unique(hash_ragged(keys))) == len(keys)
    pairs = (hash_ragged(keys, ID_SEED) == hash_ragged(keys, KEY_SEED)).sum()
    assert pairs == 0


@pytest.mark.parametrize(("value", "seed", "expected"), SPARK)
def test_sparks_hash(value: int, seed: int, expected: int) -> None:
    assert spark_hash(value, seed) == expected
    if seed == 42:
        assert spark_hash(value) == expected


@given(st.integers(-(2**31), 2**31 - 1))
def test_sparks_hash_is_a_signed_32_bit_number_and_one_to_one(value: int) -> None:
    assert -(2**31) <= spark_hash(value) < 2**31
    assert spark_hash(value) != spark_hash(value ^ 1)


@pytest.mark.parametrize("n", [*range(1, SHARDS_MAX + 1), PARTITIONS_MAX])
def test_every_destination_has_a_partition_of_its_own(n: int) -> None:
    found = tokens(n)
    assert [spark_hash(token) % n for token in found] == list(range(n))
    assert len(set(found)) == n
    assert all(0 <= token < 2**31 for token in found)


def test_golden_tokens() -> None:
    """A query that resumes in the middle of a batch must route as before."""
    assert tokens(1) == (0,)
    assert tokens(8) == (12, 6, 5, 1, 25, 15, 2, 0)
