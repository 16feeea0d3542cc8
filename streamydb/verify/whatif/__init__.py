"""Execute a stretch of a log twice, as it was and with other rules, and say what differs.

In: the log, live or from a backup; modules of stored procedures and constraints to use instead.
Out: a `WhatIfReport` with counts and the first difference of each kind, and all differences one by
one. `stretch` brings the log to where the stretch begins, `other` is the execution with other
rules, `differences` compares, `parquet` keeps them.

Invariants: nothing is written to the database; both executions are the serial oracle's, over the
same records in the same order, from the same state.
"""

from __future__ import annotations

from streamydb.verify.whatif.differences import WhatIfDifference
from streamydb.verify.whatif.other import OtherRules, rules_of
from streamydb.verify.whatif.run import WhatIfReport, whatif
from streamydb.verify.whatif.stretch import History, Stretch, WhatIfError

__all__ = [
    "History",
    "OtherRules",
    "Stretch",
    "WhatIfDifference",
    "WhatIfError",
    "WhatIfReport",
    "rules_of",
    "whatif",
]  # fmt: skip
