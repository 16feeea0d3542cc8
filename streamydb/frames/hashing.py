"""Stable hashes of keys, ids and payloads: the same on every machine, process and release.

A 64-bit multiply-and-rotate hash over 8-byte words (in the manner of wyhash and xxHash, finished
with Stafford's variant 13 of the splitmix64 finaliser). It decides which shard a key lives on, so
it must never change. Two seeds together give the 128 bits by which a transaction id is recognised.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames.jit import inlined, kernel, leaf
from streamydb.frames.table import Bytes, Ragged

# Equal bytes as a key, an id and a payload have unrelated hashes.
KEY_SEED = 0
ID_SEED = 0x9E3779B97F4A7C15
PAYLOAD_SEED = 0xC2B2AE3D27D4EB4F


@kernel
def mix(h: np.uint64) -> np.uint64:
    """For kernels: a bijection of 64 bits in which every bit depends on every other."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@leaf
def shift_of(places: int) -> np.uint64:
    """For kernels: by how many bits a hash is shifted to be a place among so many,
    a power of two.
    """
    shift = 64
    while places > 1:
        places >>= 1
        shift -= 1
    return np.uint64(shift)


@kernel
def word_at(data: Bytes, at: int) -> np.uint64:
    """For kernels: eight bytes, little-endian.

    The compiler makes one load of it, as the loop is unrolled and no index can be negative.
    """
    word = np.uint64(0)
    for j in range(np.uint64(8)):
        word |= np.uint64(data[np.uint64(at) + j]) << np.uint64(8 * j)
    return word


@inlined
def hash_span(data: Bytes, start: int, end: int, seed: np.uint64) -> np.uint64:
    """For kernels: the hash of ``data[start:end]``."""
    h = seed ^ (np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15))
    at = start
    while at + 8 <= end:
        h = mix(h ^ word_at(data, at)) * np.uint64(0xD6E8FEB86659FD93)
        at += 8
    word = np.uint64(0)
    for j in range(at, end):  # unsigned places, as above
        word |= np.uint64(data[np.uint64(j)]) << np.uint64(8 * (j - at))
    return mix(h ^ word ^ (np.uint64(end - at) << np.uint64(60)))


@kernel
def _hash_all(
    data: Bytes, offsets: npt.NDArray[np.int64], seed: np.uint64
) -> npt.NDArray[np.uint64]:
    n = len(offsets) - 1
    out = np.empty(n, np.uint64)
    for i in range(n):
        out[i] = hash_span(data, offsets[i], offsets[i + 1], seed)
    return out


def hash_ragged(values: Ragged, seed: int = KEY_SEED) -> npt.NDArray[np.uint64]:
    """Hash every element of ``values``; shape (n,), uint64."""
    return _hash_all(values.data, values.offsets, np.uint64(seed))


def hash_bytes(value: bytes, seed: int = KEY_SEED) -> int:
    """Hash one byte string; the same function as :func:`hash_ragged`, in [0, 2**64)."""
    return int(hash_ragged(Ragged.of([value]), seed)[0])


def shard_of(key: bytes, shards: int) -> int:
    """The shard that owns ``key`` (UTF-8) in a database of ``shards`` shards."""
    return hash_bytes(key) % shards


# Numbers that only this process knows: they place entries in its tables in memory.
#
# The hashes of keys and ids are public, so a client can make as many as it likes that want one
# place in a table, and each would be looked for behind all others. Where a table puts an entry must
# depend on something that no client knows. Nothing else may: what is found in a table, and in which
# order its entries are numbered, is the same for all numbers, so no output and no state depends on
# them.
FACTOR: Final = np.uint64(secrets.randbits(64) | 1)
"""For hashes: the upper bits of the product are the place. Two of them meet no more often than by
chance (Dietzfelbinger et al. 1997, "A reliable randomized algorithm for the closest-pair problem").
"""

SEED: Final = np.uint64(secrets.randbits(64))
"""For texts of which the public hashes may be alike: the seed of another hash."""
