"""Frames: tables and messages in arrays, on which the engine computes transactions by the thousand.

In: byte strings and numbers by the hundred thousand. Out: the same as tables (`table`), hashes
(`hashing`), slots (`interning`), messages (`messages`, as bytes by `protocol`), by kernels (`jit`).
`program` is the instruction set that a transaction is compiled to; `blobs` is how state is kept.

Invariants: a table's columns are equally long; a hash, a block and a program mean the same on every
machine and in every release of one format; nothing here reads a clock, a file or Kafka.
"""
