"""The key processor: one shard's values, versions, ids and locks; grants them in order.

In: the plan, and the feedback of the plan before. Out: grants, that is, the payloads of the
transactions whose ids live here, and the values of the keys that live here. `core` is a shard, step
by step (KeyTransactionProcessor); `values` keeps the values, `idwindow` the ids, `grants` makes the
grants, `locking` is all of grouping=single.

Invariants: no two open groups ever write one key, because a plan is only made when the feedback of
the last is applied. A local file is only used when it is on the state's own history.
"""

from __future__ import annotations
