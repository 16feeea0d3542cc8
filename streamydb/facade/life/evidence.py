"""The traces that a transaction has left in Kafka."""

from __future__ import annotations

import msgspec

from streamydb.kafka.digests import ShardDigests
from streamydb.records import Change, Result, Transaction


class ResultRecord(msgspec.Struct):
    """A record of the results with the transaction's id; ``written_ms``: by Kafka's clock."""

    result: Result
    written_ms: int


class ChangeRecord(msgspec.Struct):
    """A record of the changes, and where it lies."""

    key: str
    change: Change
    partition: int
    offset: int
    written_ms: int


class ResolvedRecord(msgspec.Struct):
    """Everything up to ``seq`` was written, said in every partition by ``written_ms``."""

    seq: int
    written_ms: int


class Passing(msgspec.Struct):
    """The record with which a partition of the log had passed the transaction's time."""

    partition: int
    offset: int
    append_ms: int


class PlanMember(msgspec.Struct):
    """A transaction of the same plan; ``txn`` is None if its record is no transaction."""

    seq: int
    txn: Transaction | None


class FeedbackPlan(msgspec.Struct):
    """The plan that a pipeline's feedback names; ``members``: empty if they were not looked at."""

    number: int
    first: int
    last: int
    life: str
    members: list[PlanMember] = []


class Evidence(msgspec.Struct, kw_only=True):
    """The evidence; what is None or empty was not found, and ``missing`` says why.

    Attributes:
        raw: the record that was executed.
        append_ms: when it was appended.
        partitions: of the log.
        results: records of the results with this id, in order, each time that one was written.
        since_ms: results were looked through from this time on.
        complete: they were looked through up to their end.
        passed: with several partitions, how the others passed the transaction's time.
        plan: the plan it was in.
        changes: what was written of its writes.
        resolved: when everything up to it was written.
        digests: the first of the state after it.
        missing: part of a life -> why it is not known.
    """

    raw: bytes | None = None
    append_ms: int | None = None
    partitions: int | None = None
    results: list[ResultRecord] = []
    since_ms: int | None = None
    complete: bool = False
    passed: list[Passing] | None = None
    plan: FeedbackPlan | None = None
    changes: list[ChangeRecord] = []
    resolved: ResolvedRecord | None = None
    digests: list[ShardDigests] = []
    missing: dict[str, str] = {}
