"""Random transactions of SQL at the same time, held against SQLite one after the other."""

from __future__ import annotations

import random

from streamydb_layers.tables import OpenTransaction, Tables, TransactionConflictError
from tests.support.tables import Drawn, Pair

__all__ = ["committed", "interleave"]


def interleave(seed: int, tables: Tables, statements: int) -> None:
    """Run random transactions at the same time; hold those that commit against SQLite."""
    rng = random.Random(seed)
    drawn = Drawn(rng)
    pair = Pair(tables)
    try:
        for sql in [*drawn.schema(), *(drawn.insert() for _ in range(6))]:
            pair.same(sql)
        opened: list[tuple[OpenTransaction, list[tuple[str, object]]]] = []
        for _ in range(statements):
            if len(opened) < 3:
                opened.append((pair.tables.begin(), []))
            transaction, said = rng.choice(opened)
            if len(said) > 1 and rng.random() < 0.4:
                opened.remove((transaction, said))
                committed(pair, transaction, said)
                continue
            sql = drawn.statement()
            said.append((sql, pair.mine(sql, transaction)))
        for shape in drawn.shapes:
            pair.same(f"select * from {shape.name}")
    finally:
        pair.close()


def committed(pair: Pair, transaction: OpenTransaction, said: list[tuple[str, object]]) -> None:
    """Commit; if that succeeds, and if it wrote, SQLite gives the same answers now."""
    wrote = transaction.writes
    try:
        transaction.commit()
    except TransactionConflictError:
        return
    if wrote:
        for sql, answer in said:
            if answer != "on conflict":
                assert pair.theirs(sql) == answer, sql
