"""The blocks that travel between the stages, and where each goes.

parse to shard: ``records`` (compiled log records), ``feedback`` (what a partition of a plan
wrote), ``token`` (that some other shard's feedback has come), ``role`` (whether to lead or follow),
``audit``. Shard to executing partition: ``grant``, ``resolved``, ``digests``, ``results`` (known
without execution), ``removals`` (of what has ended), and ``notice`` (for the driver). Executing
partition to formatting task: ``rows``, ``output``; ``feedback`` goes out as a record and comes back
as a block. With `grouping=single` shards send ``single`` (payloads and grants), and the feedback is
``released``, of which other shards are told the ``parts``, and ``swept``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from streamydb.columns.encoding import Part, Stored, narrowed, pack_narrowed, peel
from streamydb.columns.hashing import KEY_SEED, hash_ragged
from streamydb.columns.protocol import FORMAT, require_format
from streamydb.columns.table import Array, Columns

__all__ = [
    "halves",
    "open_block",
    "open_header",
    "open_home",
    "open_records",
    "records_blocks",
]


def records_blocks(
    table: Columns, homes: Iterable[tuple[Array, Columns]],
    last: Sequence[tuple[int, int, int, str]] = (), *, hashes: bool = False,
) -> Iterator[list[Part]]:
    """Compiled records for every shard, each with its own home part.

    ``hashes``: those of the keys, too. To move them costs more than to compute them again, unless
    all shards read one and the same part.

    Yields the parts of each block; what all shards get is one of them, the same object.

    A half of the hash of an id tells which records may have one id, and whose home a shard is; only
    the home must tell ids apart, so only it gets the other half.

    ``last``: the last record of each partition among them.

    The arrays of the shared part are first; `halves` divides the two.
    """
    rest = {name: child for name, child in table.children.items() if name != "home"}
    arrays = Columns(table.cols, table.texts, rest).flatten()
    if not hashes:
        del arrays["keys.hash"]
    id1 = arrays.pop("id1")
    shared = narrowed(arrays)
    shared.stored = [b"".join(shared.stored)]
    for counts, payloads in homes:
        here = id1[np.flatnonzero(counts)]
        own = narrowed({"home*": counts, "home.id1": here, **payloads.flatten("home.")})
        yield pack_narrowed([shared, own], kind="records", format=FORMAT, last=last)


def halves(records: Stored) -> tuple[Stored, Stored]:
    """Divide a block that `records_blocks` made: what all shards get, and what one shard gets."""
    return records.divided("home")


def open_records(shared: Stored) -> Columns:
    """The records of a block as all shards know them, with the hashes of the keys."""
    table = Columns.unflatten(shared.arrays())
    keys = table.children["keys"][1]
    if "hash" not in keys.cols:
        keys.cols["hash"] = hash_ragged(keys.texts["key"], KEY_SEED)
    return table


def open_home(own: Stored) -> Columns:
    """The rest, which one shard knows; ``id1`` is 0 where the home is elsewhere."""
    table = Columns.unflatten(own.arrays())
    counts, home = table.children["home"]
    table.cols["id1"] = np.zeros(len(counts), np.uint64)
    table.cols["id1"][np.flatnonzero(counts)] = home.cols.pop("id1")
    return table


def open_header(block: bytes) -> tuple[dict[str, Any], Stored]:
    """Decode the header of a block and check its format; its arrays can be decoded later.

    Raises:
        InvariantViolation: the block was written by a release with another format.

    """
    header, stored = peel(block)
    require_format(header)
    return header, stored


def open_block(block: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Decode a block and check its format.

    Raises:
        InvariantViolation: the block was written by a release with another format.

    """
    header, stored = open_header(block)
    return header, stored.arrays()
