"""The protocol of `grouping=single`: one lock at a time, held over batches.

The reference implementation of the locking protocol. In: compiled records, and feedback of single
transactions. Out: payloads and grants, lock by lock, and results when a transaction has all it
needs. `core` is a shard, `executor` an executing partition; both are pure.

Invariants: a lock is granted in seq order; a writer holds it until its feedback is applied; a
transaction is executed once everything that it needs has come, and not before.
"""
