"""The executing partition of `grouping=single`: it gathers payloads and grants over micro-batches.

In: payloads and grants, lock by lock (`key_processor.locking`). Out: results, and the locks that
come back, when a transaction has all it needs. `core` is the partition (Gatherer), `gathered` its
state, `execution` executes one transaction.

Invariants: a transaction is executed once everything that it needs has come, and not before.
"""
