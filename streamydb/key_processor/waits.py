"""Bound the time that a shard waits for the feedback of its grants."""

from __future__ import annotations

from typing import Final

from streamydb.errors import InvariantViolation

__all__ = ["refuse_to_wait"]

_WAITS_MAX: Final = 50
"""Micro-batches; normally all feedback of a plan comes in the next one."""


def refuse_to_wait(waits: int, seq: int) -> None:
    """Refuse to wait for ever: what was executed in a batch is in the feedback when it has ended.

    Args:
        waits: micro-batches in a row in which none came though some is missing.
        seq: the last one whose feedback is there.

    Raises:
        InvariantViolation: it will not come any more.

    """
    if waits > _WAITS_MAX:
        raise InvariantViolation(
            f"the feedback of what comes after seq {seq} has not come in {_WAITS_MAX} "
            "micro-batches: it was lost, say with a broker's power. The log has everything; run "
            "`streamydb rebuild` (docs/operations.md, 'A damaged checkpoint')"
        )
