"""Proof of the order of changes: those of a key in order, and `resolved` true wherever it stands.

A change may come twice: the pipeline that led before writes on for a moment. The first copy counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError
from streamydb.kafka.reader import TopicReader

__all__ = ["ChangeOrder", "order_of", "read_order"]

Ints = npt.NDArray[np.int64]

RESOLVED: Final = -1
"""Stands for a key: the record says what is resolved."""

_SEQ_BITS: Final = 40
"""A seq has so many at most here; the number of a key has the rest."""

_SEQ: Final = re.compile(rb'^(?:\{"resolved":(\d+),|.*?"seq":(\d+)\},"transaction":)', re.MULTILINE)


@dataclass(slots=True)
class ChangeOrder:
    """The order of the changes.

    ``again``: copies of changes that were there before. ``late``: resolved records with a seq below
    one that was there before.
    """

    changes: int = 0
    again: int = 0
    resolved: int = 0
    late: int = 0


def order_of(keys: Ints, seqs: Ints) -> ChangeOrder:
    """Check the records of a partition, in their order.

    ``keys``: a number for each key, from 0; RESOLVED: the record says what is resolved; (n,).
    ``seqs``: of the changes, or what is resolved; (n,).

    Raises:
        BenchError: a key's changes are not in order, or one came behind a record that said it was
            there.
    """
    is_resolved = keys == RESOLVED
    said = np.maximum.accumulate(np.where(is_resolved, seqs, 0)) if len(seqs) else seqs
    at = np.flatnonzero(~is_resolved)
    _, first = np.unique(keys[at] << _SEQ_BITS | seqs[at], return_index=True)
    at = at[np.sort(first)]
    behind = at[seqs[at] <= said[at]]
    if len(behind):
        what = f"the change of seq {seqs[behind[0]]:,} came first behind a record that"
        raise BenchError(f"{what} all up to {said[behind[0]]:,} is resolved")
    by_key = at[np.argsort(keys[at], kind="stable")]
    same = keys[by_key[1:]] == keys[by_key[:-1]]
    wrong = np.flatnonzero(same & (seqs[by_key[1:]] < seqs[by_key[:-1]]))
    if len(wrong):
        low, high = seqs[by_key[wrong[0] + 1]], seqs[by_key[wrong[0]]]
        raise BenchError(f"a key's change of seq {low:,} came first behind that of {high:,}")
    changes, resolved = int((~is_resolved).sum()), int(is_resolved.sum())
    late = int((is_resolved & (seqs < said)).sum())
    return ChangeOrder(changes, changes - len(at), resolved, late)


def read_order(
    connection: Mapping[str, str], topic: str, note: Callable[[int], object] = lambda _: None
) -> ChangeOrder:
    """Read all changes and check their order.

    Args:
        connection: settings of confluent-kafka.
        topic: of the changes.
        note: is told how many records were read.

    Raises:
        BenchError: as `order_of`, or a record is no change.
        ReadingError: Kafka does not answer.
    """
    whole = ChangeOrder()
    with TopicReader(connection, topic) as reader:
        for number, span in reader.spans().items():
            reader.assign({number: span.low})
            numbers: dict[bytes, int] = {}
            keys: list[Ints] = []
            seqs: list[Ints] = []
            for messages in reader.until({number: span.high}):
                found = [
                    (numbers.setdefault(key, len(numbers)) if key else RESOLVED, value)
                    for message in messages
                    if (value := message.value()) is not None
                    for key in [message.key()]
                ]
                keys.append(np.fromiter((key for key, _ in found), np.int64, len(found)))
                seqs.append(_seqs([value for _, value in found]))
                note(whole.changes + sum(map(len, seqs)))
            if keys:
                _add(whole, order_of(np.concatenate(keys), np.concatenate(seqs)))
    return whole


def _seqs(values: list[bytes]) -> Ints:
    found = _SEQ.findall(b"\n".join(values))
    if len(found) != len(values):
        raise BenchError(f"{len(values) - len(found)} records of the changes are no changes")
    return np.fromiter((int(said or seq) for said, seq in found), np.int64, len(found))


def _add(whole: ChangeOrder, part: ChangeOrder) -> None:
    whole.changes += part.changes
    whole.again += part.again
    whole.resolved += part.resolved
    whole.late += part.late
