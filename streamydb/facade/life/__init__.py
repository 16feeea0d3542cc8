"""The life of one transaction, for REST, the console and the command line.

`evidence` is what Kafka still has of it, `kafka` collects that, `group` finds with whom it was in
conflict, `core` puts all together. In: a verdict, evidence, and the state right before the
transaction, as far as it is known. Out: a `TransactionHistory`.

Invariants: what follows from the log is computed from it; what does not (when something was
written, where a plan ended) is shown as it was recorded, or named in `unknown` with the reason.
Nothing is guessed.
"""

from __future__ import annotations

from streamydb.facade.life.core import TransactionHistory, explain, visible_history
from streamydb.facade.life.evidence import Evidence

__all__ = ["Evidence", "TransactionHistory", "explain", "visible_history"]
