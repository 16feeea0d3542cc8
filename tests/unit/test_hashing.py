"""Hashes decide where a key lives: these values must never change, or databases are lost."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamydb.columns import Ragged
from streamydb.hashing import ID_SEED, KEY_SEED, PAYLOAD_SEED, hash_bytes, hash_ragged, shard_of
from streamydb.pipeline.routing import spark_hash, tokens

GOLDEN = [
    (b'', KEY_SEED, 0),
    (b'', ID_SEED, 16294208416658607535),
    (b'', PAYLOAD_SEED, 7531437802973452838),
    (b'a', KEY_SEED, 3307052520681099803),
    (b'a', ID_SEED, 2499407151905716138),
    (b'a', PAYLOAD_SEED, 2305392385676677381),
    (b'acct/1', KEY_SEED, 14697428324398377844),
    (b'acct/1', ID_SEED, 4310617535184465442),
    (b'acct/1', PAYLOAD_SEED, 4432812369839703829),
    (b'12345678', KEY_SEED, 12909745284173034195),
    (b'12345678', ID_SEED, 14852681215410930183),
    (b'12345678', PAYLOAD_SEED, 2505202466776411674),
    (b'acct/12345/balance', KEY_SEED, 15164365541589030228),
    (b'acct/12345/balance', ID_SEED, 1191817964045946228),
    (b'acct/12345/balance', PAYLOAD_SEED, 8274915649940022540),
    (b'\xc3\xa9/\xc3\xbc', KEY_SEED, 12108246729904363568),
    (b'\xc3\xa9/\xc3\xbc', ID_SEED, 14976227518595932474),
    (b'\xc3\xa9/\xc3\xbc', PAYLOAD_SEED, 8180474207461989536),
]


@pytest.mark.parametrize(("value", "seed", "expected"), GOLDEN)
def test_golden_values(value: bytes, seed: int, expected: int) -> None:
    assert hash_bytes(value, seed) == expected


def test_one_and_many_are_hashed_alike() -> None:
    rng = random.Random(1)
    values = [rng.randbytes(length) for length in range(40)]
    for seed in (KEY_SEED, ID_SEED, PAYLOAD_SEED):
        found = hash_ragged(Ragged.of(values), seed).tolist()
        assert found == [hash_bytes(value, seed) for value in values]


def test_every_byte_counts() -> None:
    value = bytes(range(60, 90))
    changed = [value[:i] + b"!" + value[i + 1 :] for i in range(len(value))]
    assert len({hash_bytes(v) for v in [value, *changed, value[:-1], value + b"\0"]}) == 33


def test_keys_are_spread_over_shards() -> None:
    for shards in (2, 3, 4, 64):
        counts = np.bincount([shard_of(b"acct/%d" % i, shards) for i in range(6400)])
        assert counts.min() > 0.6 * 6400 / shards
        assert counts.max() < 1.4 * 6400 / shards


def test_spark_hashes_as_spark_does() -> None:
    """SELECT hash(0), hash(1), hash(-1), hash(42) in Spark."""
    assert [spark_hash(v) for v in (0, 1, -1, 42)] == [933211791, -559580957, -1604776387, 29417773]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 64])
def test_every_token_has_a_partition_of_its_own(n: int) -> None:
    assert [spark_hash(token) % n for token in tokens(n)] == list(range(n))
