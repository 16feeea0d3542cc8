"""Break the rulings on internal faults on purpose (see `mutations`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from simulator import cluster, faults
from streamydb.parser import compile as compiling
from streamydb.txn_processor import core
from streamydb.txn_processor.gathering import core as gathering

__all__ = [
    "believe_the_exception",
    "follow_without_rulings",
    "rule_at_once",
    "rule_on_what_is_known",
    "rule_without_a_fence",
]


@contextmanager
def believe_the_exception() -> Iterator[None]:
    """Rulings: a fault of ours aborts its transaction at once, and nobody writes that down."""

    def require(_faults: Any, *, executed: bool = False) -> None:
        del executed

    with ExitStack() as stack:
        for place in (compiling, core, gathering):
            stack.enter_context(mock.patch.object(place, "require_ruled", require))
        yield


def rule_without_a_fence() -> Any:
    """Rulings: whoever led before may still rule."""
    return mock.patch.object(faults.SimulatedRulings, "fence", return_value=None)


def rule_on_what_is_known() -> Any:
    """Rulings: nobody looks whether a result was written before."""
    return mock.patch.object(cluster.Cluster, "_known", return_value=[])


def follow_without_rulings() -> Any:
    """Rulings: a pipeline keeps those that it began with."""
    return mock.patch.object(cluster.Cluster, "take_rulings", return_value=None)


def rule_at_once() -> Any:
    """Rulings: a new leader does not wait until the one before writes nothing more."""
    return mock.patch.object(cluster.Cluster, "has_read", return_value=True)
