"""The digests that all pipelines tell, and what one of them does when they differ."""

from __future__ import annotations

import logging
from typing import Final

from streamydb.errors import RecordError
from streamydb.frames.messages import Audit
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.kafka.shared_topics import DigestRecord, SharedTopics
from streamydb.pipeline.standby.agreement import KNOWN_DIGESTS_MAX, Agreement, Disagreement
from streamydb.pipeline.standby.core import ElectionMember

log = logging.getLogger("streamydb.standby")

_DIGESTS_MAX: Final = 5 * KNOWN_DIGESTS_MAX
"""A start reads so many of the last digests: each pipeline tells each digest, and again after a
crash.
"""


class DigestWatch:
    """Reads the digests, compares them, and has the own state audited when they differ.

    Attributes:
        sound: the pipelines whose audits have found nothing.
        alarm: the difference, for people; None: there is none.
    """

    def __init__(self, topics: SharedTopics, config: ShardConfig, member: ElectionMember) -> None:
        names = TopicNames(config.database)
        self.sound: set[str] = set()
        self.alarm: str | None = None
        self._topics = topics
        self._topic = names.digests
        self._feedback = names.feedback_of(config.name)
        self._me = config.incarnation
        self._member = member
        self._agreement = Agreement(config.digest_interval, config.shards)
        self._live_from = 0
        self._position = -1
        self._difference: Disagreement | None = None
        self._audit_at: int | None = None

    def begin(self, end: int) -> None:
        """Begin to read; ``end``: the digests before this offset were there before the start."""
        self._live_from = end
        self._topics.read_digests(max(0, end - _DIGESTS_MAX))

    def read(self) -> bool:
        """Take what has come; return True if something has."""
        records = self._topics.digests()
        for record in records:
            self._take(record)
        return bool(records)

    def judge(self, feedback_read: int) -> str | None:
        """Have the own state audited when digests differ; if both pipelines are sound, one stops.

        One whose state is damaged does not come out of the audit. The other one then goes on, and
        leads if it did not. So a sound one stops only if it hears that the leader is sound, too.

        ``feedback_read``: the offset up to which the own feedback has been read.

        Returns:
            Why this pipeline must stop; None while it need not.
        """
        difference, me = self._difference, self._me
        other = None if difference is None else difference.other(me)
        if other is None:
            return None
        if self._audit_at is None:
            block = Audit(me, str(difference)).block()
            self._audit_at = self._topics.tell(self._feedback, block)
        elif me not in self.sound and feedback_read > self._audit_at:
            self.sound.add(me)
            self._topics.say(self._member.audited())
            self.alarm = f"{difference}; the state of this pipeline agrees with its digest"
            log.error("%s; run `streamydb check`", self.alarm)
        elif {me, other} <= self.sound and other == self._member.leader.pipeline:
            advice = "it does not lead, so it stops; `streamydb check` tells which one is wrong"
            return f"{self.alarm}, and so does the other's, but {advice}"
        return None

    def _take(self, record: DigestRecord) -> None:
        if record.offset <= self._position:
            self._live_from = 0  # what comes there now was told just now
            log.warning(
                "%s goes on at offset %d, after offset %d: it was made anew, or has lost its end. "
                "Digests that are gone are not compared any more (docs/operations.md, 'A topic was "
                "deleted')", self._topic, record.offset, self._position,
            )  # fmt: skip
        self._position = record.offset
        live = record.offset >= self._live_from
        try:
            difference = self._agreement.take(
                record.key, record.value, live=live, told_ms=record.told_ms
            )
        except RecordError:
            return
        if difference is None:
            return
        known = None if self._difference is None else self._difference.other(self._me)
        if difference.other(self._me) in (None, known):
            self.alarm = self.alarm or str(difference)
            return
        self._difference, self._audit_at, self.alarm = difference, None, str(difference)
        self.sound.discard(self._me)
        log.error("%s", difference)
