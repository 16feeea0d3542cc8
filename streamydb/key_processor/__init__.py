"""The key processor: one shard's values, versions, ids and locks; grants them in order.

In: the plan, and the feedback of the plan before. Out: grants, that is, the payloads of the
transactions at home here and the values of the keys that live here. `core` is a shard, step by
step (KeyTransactionProcessor); `feedback` collects what comes back, `values` keeps the values,
`idwindow` the ids, `fitter` cuts the plan, `grants` makes the grants, `locking` is all of
grouping=single.

Invariants: no two open groups ever write one key (a plan is only made when the feedback of the last
is applied); a local file is only believed when it is on the state's own history.
"""

from __future__ import annotations
