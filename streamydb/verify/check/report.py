"""The report of a check: counts per kind of output, the first differences, and the verdict."""

from __future__ import annotations

import msgspec

DIFFERENCES_MAX = 20  # how many differences are kept with their details; all are counted
EXCERPT_BYTES_MAX = 600  # how much of an expected or actual record is shown


class OutputCounts(msgspec.Struct):
    """One kind of output (results, changes, dead letters) compared with the replay."""

    expected: int = 0
    """Outputs that the replay produced."""
    matched: int = 0
    """Expected outputs that are there, byte for byte."""
    duplicates: int = 0
    """Exact repetitions; harmless, readers drop them by (seq, index)."""
    missing: int = 0
    """Expected outputs that are not there."""
    expired: int = 0
    """Expected outputs that the topic's retention has deleted since."""
    extra: int = 0
    """Outputs that no transaction of the log accounts for."""
    differing: int = 0
    """Outputs of a known (seq, index) with other bytes."""
    later: int = 0
    """Outputs of transactions that were appended after the check began; not judged."""

    @property
    def good(self) -> bool:
        return not (self.missing or self.extra or self.differing)


class Difference(msgspec.Struct, omit_defaults=True):
    """One deviation from the replay, with its place."""

    kind: str
    """missing, extra, differing, unreadable, order, partition, tombstone, resolved or value."""
    topic: str
    message: str
    partition: int | None = None
    offset: int | None = None
    seq: int | None = None
    index: int | None = None
    """The `total_order` of a change: its place among those of one transaction, from 1; of a removal
    by time, a number above all of these."""
    expected: str | None = None
    actual: str | None = None


class CheckReport(msgspec.Struct):
    """The outcome of one check."""

    database: str
    ok: bool = False
    transactions: int = 0
    """Transactions replayed; the seq of the last one."""
    held_back: int = 0
    """Records of the log that no watermark has released yet; not judged."""
    markers: int = 0
    faults: int = 0
    """Transactions that a fault of ours has aborted; the replay takes that verdict as given."""
    results: OutputCounts = msgspec.field(default_factory=OutputCounts)
    changes: OutputCounts = msgspec.field(default_factory=OutputCounts)
    deadletters: OutputCounts = msgspec.field(default_factory=OutputCounts)
    streams: OutputCounts = msgspec.field(default_factory=OutputCounts)
    """Records that procedures emitted."""
    follow_ups: OutputCounts = msgspec.field(default_factory=OutputCounts)
    """Records that workflows have appended to the log."""
    tombstones: int = 0
    resolved: int = 0
    """Resolved records read."""
    resolved_seq: int = 0
    """The highest seq that was reported as resolved."""
    keys: int = 0
    """Keys that hold a value at the end of the replay."""
    values_differing: int = 0
    """Keys whose value or version, computed from the changes, is not that of the replay."""
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    """Broken rules of the change feed, by kind: order, partition, tombstone, resolved."""
    differences: list[Difference] = msgspec.field(default_factory=list)
    """The first DIFFERENCES_MAX deviations."""
    caught_up: bool = False
    """Every released transaction had all its outputs before the time was up."""
    seconds: float = 0.0
    txn_per_s: float = 0.0
    """Transactions replayed and compared per second, waiting left out."""

    def judge(self) -> None:
        counts = (
            self.results, self.changes, self.deadletters, self.streams, self.follow_ups
        )  # fmt: skip
        self.ok = (
            all(count.good for count in counts)
            and not self.violations
            and not self.values_differing
        )

    def note(self, difference: Difference) -> None:
        """Keep the difference if it is among the first ones."""
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(difference)

    def violate(self, difference: Difference) -> None:
        """Count a broken rule of the change feed and keep its details."""
        self.violations[difference.kind] = self.violations.get(difference.kind, 0) + 1
        self.note(difference)


def excerpt(raw: bytes | None) -> str | None:
    """A record as text for people, cut at EXCERPT_BYTES_MAX."""
    if raw is None:
        return None
    text = raw[:EXCERPT_BYTES_MAX].decode("utf-8", "backslashreplace")
    return text if len(raw) <= EXCERPT_BYTES_MAX else f"{text}… ({len(raw)} bytes)"
