"""The transaction processor: executes granted transactions, and makes their records.

In: grants of one plan from all shards. Out: results, changes, dead letters, and feedback to the
shards. `parser` and `compile` turn records into steps, `kernel` executes them, `interpreter`
executes one on Python objects, `execution` drives both, `format` and `outputs` make the records;
`core` is the stage that hosts call.

Invariants: transactions of a partition run serially in seq order; all checks see the state before
the transaction; every output is identified by (seq, index) and byte-identical when produced again.
"""

from __future__ import annotations
