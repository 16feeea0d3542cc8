"""The serial oracle: the meaning of a log, in plain single-threaded Python.

In: the records of a log. Out: its outputs in order, and the final state. `core` executes, `steps`
are checks and updates of one value, `outputs` are what one record leaves, `order` is the total
order of a whole log at once, `replay` executes it.

Invariants: nothing here is shared with the engine but records, constraints and procedures.
"""
