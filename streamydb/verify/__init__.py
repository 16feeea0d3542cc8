"""Proof: the meaning of a log, and checks of logs, seeds and histories of clients against it.

`oracle` is the meaning, serial and plain; `check` replays a live log with it; `simulator` attacks
the pure classes with it; `histories` judges from outside what clients saw, and needs no oracle.

Invariants: the oracle shares no execution code with the engine; a seed is repeated exactly; a judge
is shown to notice what it is for, by mutations or by histories made by hand.
"""
