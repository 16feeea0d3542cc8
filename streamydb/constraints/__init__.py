"""Integrity constraints: rules for the values under a prefix of keys.

A constraint is declared by a transaction and lies, with all others, under one reserved key. Every
transaction that writes reads that key, so the order of the log says which constraints hold for it.
In: declarations, values. Out: what a value violates, and which index keys uniqueness needs. Who
enforces it (the executor, the oracle, a client's forecast) is not said here.
"""

from __future__ import annotations

from streamydb.constraints.core import Constraint, Constraints, amended, parse
from streamydb.constraints.schema import DeclarationRefused

__all__ = ["Constraint", "Constraints", "DeclarationRefused", "amended", "parse"]
