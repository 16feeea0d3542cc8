"""A copy of the changes for Kafka Connect and other readers that know nothing of the database.

In: `<db>.changes`. Out: `<db>.connect`, compacted, whose records bring their schemas
(`streamydb.records.connect`).

Invariants, for a reader of committed records: each change once, in the order of seqs within a
partition, all of a transaction's changes in a partition at once; a record of `<db>.connect` lies in
the partition of its change. What is copied is a pure function of the changes topic; the last record
of each partition says from where to go on, so nothing else is kept.
"""

from __future__ import annotations

from streamydb.kafka.connect.copier import Copier
from streamydb.kafka.connect.core import CopiedRecord, PartitionCopy

__all__ = ["CopiedRecord", "Copier", "PartitionCopy"]
