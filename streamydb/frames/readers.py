"""The messages that each room takes, and how they are read where they come as bytes."""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

from streamydb.frames.lock_messages import FinishedParts, Locks, ReleasedLocks, Swept
from streamydb.frames.messages import (
    Audit,
    DigestRecords,
    Feedback,
    Grant,
    KeyRemovals,
    KnownResults,
    Notice,
    ResolvedRecord,
    Role,
    Token,
    ValueSizes,
)
from streamydb.frames.protocol import BlockReader
from streamydb.frames.record_messages import LogRecords

ToShard: TypeAlias = LogRecords | Role | Audit | ValueSizes | Feedback | Token
"""The messages for a shard."""

ToExecutor: TypeAlias = (
    Grant
    | ResolvedRecord
    | DigestRecords
    | KnownResults
    | KeyRemovals
    | Notice
    | Feedback
    | ValueSizes
)
"""The messages for an executing partition."""

ToSingleShard: TypeAlias = LogRecords | Role | Audit | ReleasedLocks | FinishedParts | Swept
"""The messages for a shard of `grouping=single`."""

ToGatherer: TypeAlias = Locks | ResolvedRecord | DigestRecords | KeyRemovals | Swept
"""The messages for an executing partition of `grouping=single`."""

FeedbackMessage: TypeAlias = Role | Audit | ValueSizes | Feedback | ReleasedLocks | Swept
"""The messages in the feedback topic."""

TO_SHARD: Final = BlockReader[ToShard](*get_args(ToShard))
TO_EXECUTOR: Final = BlockReader[ToExecutor](*get_args(ToExecutor))
TO_SINGLE_SHARD: Final = BlockReader[ToSingleShard](*get_args(ToSingleShard))
TO_GATHERER: Final = BlockReader[ToGatherer](*get_args(ToGatherer))
FEEDBACK: Final = BlockReader[FeedbackMessage](*get_args(FeedbackMessage))
