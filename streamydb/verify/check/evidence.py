"""The evidence of a comparison: what differs, counted and, up to a number, kept."""

from __future__ import annotations

from streamydb.verify.check.expected import Output, OutputName
from streamydb.verify.check.report import CheckReport, Difference, OutputCounts, excerpt


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
