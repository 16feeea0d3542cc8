"""How the topics of a measured database are kept: copies, and whether each append is synced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import typer

from streamydb.local.broker import CLUSTER_BROKERS

__all__ = ["CLUSTER_HEAP_MB", "ONE_COPY", "TopicCopies", "copies_of", "copies_text", "kept_copies"]

CLUSTER_HEAP_MB: Final = 512
"""The largest heap of each of three brokers; a lone one has more by default."""


@dataclass(frozen=True, slots=True)
class TopicCopies:
    """Copies of each topic, on as many brokers; all producers are idempotent, with acks=all.

    Attributes:
        replication: 1, or `CLUSTER_BROKERS`.
        sync: each broker flushes each append to its disk before it answers.
    """

    replication: int = 1
    sync: bool = False

    @property
    def min_insync(self) -> int:
        """Copies that must have a record before it counts as written."""
        return self.replication // 2 + 1

    def facts(self) -> dict[str, Any]:
        """Return the fields that an answer has."""
        return {
            "copies": self.replication, "min_insync": self.min_insync, "sync": self.sync,
        }  # fmt: skip


ONE_COPY: Final = TopicCopies()
"""One broker that answers from memory: the embedded default."""


def copies_of(replication: int, *, sync: bool) -> TopicCopies:
    """Return what the options `--replication` and `--sync` ask for.

    Raises:
        BadParameter: the bench runs no cluster of this size.
    """
    if replication not in (1, CLUSTER_BROKERS):
        raise typer.BadParameter(
            f"--replication is 1 or {CLUSTER_BROKERS}, the brokers that the bench can start, not "
            f"{replication}"
        )
    return TopicCopies(replication, sync)


def kept_copies(answer: dict[str, Any]) -> TopicCopies:
    """Return how the topics of an answer were kept; older answers do not say: one copy, no sync."""
    return TopicCopies(int(answer.get("copies", 1)), bool(answer.get("sync", False)))


def copies_text(copies: TopicCopies) -> str:
    """Say it for people."""
    synced = "synced" if copies.sync else "not synced"
    if copies.replication == 1:
        return f"1 copy, {synced}"
    return f"{copies.replication} copies ({copies.min_insync} must have a record), {synced}"
