"""Prove that a database is the outcome of its log: replay it serially, and compare byte for byte.

`run` reads Kafka; `logorder`, `expected`, `compare` and `report` are pure. In: the topics of a
database, live or stopped. Out: a `CheckReport` with counts, and the first differences in full. The
replay is `streamydb.verify.oracle.core`, which shares no execution code with the engine.
"""

from __future__ import annotations

from streamydb.verify.check.compare import Comparison
from streamydb.verify.check.expected import Expected, Output, OutputName
from streamydb.verify.check.log import CheckError, Log
from streamydb.verify.check.logorder import LogOrder
from streamydb.verify.check.report import CheckReport, Difference, OutputCounts
from streamydb.verify.check.run import CheckOptions, CheckProgress, check

__all__ = [
    "CheckError",
    "CheckOptions",
    "CheckProgress",
    "CheckReport",
    "Comparison",
    "Difference",
    "Expected",
    "Log",
    "LogOrder",
    "Output",
    "OutputCounts",
    "OutputName",
    "check",
]
