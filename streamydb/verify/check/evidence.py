"""The evidence of a comparison: what differs, counted and, up to a number, kept."""

from __future__ import annotations

from streamydb.verify.check.expected import Output, OutputName
from streamydb.verify.check.report import CheckReport, Difference, OutputCounts, excerpt


class CheckEvidence:
    """Keeps what does not agree in the report.

    Attributes:
        later_seq: the highest seq past the replay that any output claimed.
        wanted: the differences that were kept and whose expected bytes a second replay can fill in.
    """

    def __init__(self, transactions: int, report: CheckReport) -> None:
        """Nothing has been found; the replay had so many transactions."""
        self._transactions = transactions
        self._report = report
        self.later_seq = 0
        self.wanted: dict[OutputName, list[Difference]] = {}

    def outside(self, topic: str, counts: OutputCounts, seq: int, output: Output) -> None:
        """An output that the replay does not know: of a later transaction, or extra."""
        if seq > self._transactions:
            counts.later += 1
            self.later_seq = max(self.later_seq, seq)
            return
        counts.extra += 1
        kind = "extra" if seq > 0 else "unreadable"
        message = (
            "no transaction of the log accounts for this record"
            if seq > 0
            else "this record has no readable seq"
        )
        self._report.note(_difference(kind, topic, message, output, seq or None))

    def differs(self, topic: str, counts: OutputCounts, place: OutputName, output: Output) -> None:
        """An output with the bytes of no replay."""
        counts.differing += 1
        message = "the bytes (key or value) are not those of the replay"
        difference = _difference("differing", topic, message, output, place.seq)
        self._keep(difference, place)

    def absent(self, topic: str, place: OutputName) -> bool:
        message = "the replay produces this record; it is not in the topic"
        difference = Difference(kind="missing", topic=topic, message=message, seq=place.seq)
        return self._keep(difference, place)

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
