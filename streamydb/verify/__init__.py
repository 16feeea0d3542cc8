"""Proof: the meaning of a log, and checks of live logs against it.

`oracle` is the meaning, serial and plain; `check` replays a live log with it. A checkout has two
programs beside the package: `simulator` attacks the pure classes, and holds them against the
oracle; `histories` judges from outside what clients saw, and needs no oracle.

Invariants: the oracle shares no execution code with the engine; a judge is shown to notice what it
is for.
"""
