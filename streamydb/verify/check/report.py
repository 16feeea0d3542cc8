"""The report of a check: counts per kind of output, the first differences, and the verdict."""

from __future__ import annotations

import msgspec

from streamydb.verify.check.expected import Output, OutputName

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


class CheckEvidence:
    """Judges outputs one by one, and keeps what does not agree in the report.

    Attributes:
        counts: by topic.
        later_seq: the highest seq past the replay that any output claimed.
        wanted: the differences that were kept and whose expected bytes a second replay can fill in.
    """

    def __init__(self, report: CheckReport) -> None:
        self._report = report
        self.counts = {
            "results": report.results,
            "changes": report.changes,
            "deadletters": report.deadletters,
            "streams": report.streams,
            "transactions": report.follow_ups,
        }
        self.later_seq = 0
        self.wanted: dict[OutputName, list[Difference]] = {}

    def judge(self, name: OutputName, output: Output, digest: int | None, *, seen: bool) -> bool:
        """Count an output; return True if it is the first one that has the replay's bytes.

        ``digest``: of what the replay has by that name; None: it has nothing. ``seen``: the output
        was there before.
        """
        counts = self.counts[name.topic]
        if digest is None:
            self._outside(name, counts, output)
        elif hash((output.key, output.value)) != digest:
            counts.differing += 1
            message = "the bytes (key or value) are not those of the replay"
            self._keep(_difference("differing", name.topic, message, output, name.seq), name)
        elif seen:
            counts.duplicates += 1
        else:
            counts.matched += 1
            return True
        return False

    def _outside(self, name: OutputName, counts: OutputCounts, output: Output) -> None:
        """Count an output that the replay does not know: of a later transaction, or extra."""
        seq = name.seq
        if seq > self._report.transactions:
            counts.later += 1
            self.later_seq = max(self.later_seq, seq)
            return
        counts.extra += 1
        kind, message = "extra", "no transaction of the log accounts for this record"
        if seq <= 0:
            kind, message = "unreadable", "this record has no readable seq"
        difference = _difference(kind, name.topic, message, output, seq or None)
        difference.index = name.index or None
        self._report.note(difference)

    def absent(self, name: OutputName) -> bool:
        """Note an output that is not there; False if enough differences are kept."""
        message = "the replay produces this record; it is not in the topic"
        difference = Difference(kind="missing", topic=name.topic, message=message, seq=name.seq)
        return self._keep(difference, name)

    def _keep(self, difference: Difference, place: OutputName) -> bool:
        """Keep a difference and ask for its expected bytes; False if there are enough."""
        difference.index = place.index or None
        before = len(self._report.differences)
        self._report.note(difference)
        is_kept = len(self._report.differences) > before
        if is_kept:
            self.wanted.setdefault(place, []).append(difference)
        return is_kept

    def violate(self, kind: str, output: Output, seq: int | None, message: str) -> None:
        """Count a broken rule of the change feed."""
        key = excerpt(output.key)
        text = message if key is None else f"key {key!r}: {message}"
        self._report.violate(_difference(kind, "changes", text, output, seq))

    def value_differs(
        self, key: bytes, expected: tuple[bytes | None, int], actual: tuple[bytes | None, int]
    ) -> None:
        """Count a key whose final value or version is wrong."""
        self._report.values_differing += 1
        difference = Difference(
            kind="value",
            topic="changes",
            message=(
                f"key {excerpt(key)!r}: the changes add up to version {actual[1]}, "
                f"the replay to version {expected[1]}"
            ),
            seq=expected[1] or None,
            expected=excerpt(expected[0]),
            actual=excerpt(actual[0]),
        )
        self._report.note(difference)


def _difference(kind: str, topic: str, message: str, output: Output, seq: int | None) -> Difference:
    """A difference at the place of a record that was read."""
    return Difference(
        kind=kind,
        topic=topic,
        message=message,
        partition=output.partition,
        offset=output.offset if output.offset >= 0 else None,
        seq=seq,
        actual=excerpt(output.value),
    )
