"""The anomalies of the Hermitage list, in SQL: schedules in which none of them may happen.

https://github.com/ept/hermitage has the schedules; the names are those of Adya's thesis. What is
committed second, and has met another's write, conflicts.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamydb_layers.tables import OpenTransaction, Tables, TransactionConflictError

__all__ = ["SCHEDULES", "Schedule", "filled"]

Schedule = Callable[[Tables], None]
FIRST, SECOND = "where id = 1", "where id = 2"


def filled(tables: Tables) -> Tables:
    """Make the two rows that schedules begin with."""
    tables.sql("create table test (id int primary key, value int)")
    tables.sql("insert into test values (1, 10), (2, 20)")
    return tables


def value(view: Tables | OpenTransaction, where: str) -> int:
    """Return the value of a row."""
    [[found]] = view.sql(f"select value from test {where}").rows
    return int(found)


def put(view: OpenTransaction, where: str, new: str) -> None:
    """Set the value of a row."""
    assert view.sql(f"update test set value = {new} {where}").changed == 1


def conflicts(transaction: OpenTransaction) -> None:
    """Commit in vain."""
    with pytest.raises(TransactionConflictError):
        transaction.commit()


def g0_writes_do_not_interleave(tables: Tables) -> None:
    """G0: two transactions write the same rows."""
    one, other = tables.begin(), tables.begin()
    put(one, FIRST, "11")
    put(other, FIRST, "12")
    put(one, SECOND, "21")
    one.commit()
    put(other, SECOND, "22")
    conflicts(other)
    assert (value(tables, FIRST), value(tables, SECOND)) == (11, 21)


def g1a_what_is_rolled_back_is_never_read(tables: Tables) -> None:
    """G1a: aborted reads."""
    one, other = tables.begin(), tables.begin()
    put(one, FIRST, "101")
    assert value(other, FIRST) == 10
    one.rollback()
    assert value(other, FIRST) == 10
    other.commit()
    assert value(tables, FIRST) == 10


def g1b_intermediate_values_are_never_read(tables: Tables) -> None:
    """G1b: intermediate reads."""
    one, other = tables.begin(), tables.begin()
    put(one, FIRST, "101")
    assert value(other, FIRST) == 10
    put(one, FIRST, "11")
    one.commit()
    assert value(other, FIRST) == 10
    other.commit()
    assert value(tables, FIRST) == 11


def g1c_information_does_not_flow_in_circles(tables: Tables) -> None:
    """G1c: circular information flow."""
    one, other = tables.begin(), tables.begin()
    put(one, FIRST, "11")
    put(other, SECOND, "22")
    assert (value(one, SECOND), value(other, FIRST)) == (20, 10)
    one.commit()
    conflicts(other)
    assert (value(tables, FIRST), value(tables, SECOND)) == (11, 20)


def otv_a_transaction_does_not_vanish_in_part(tables: Tables) -> None:
    """OTV: observed transaction vanishes."""
    one, other, reader = tables.begin(), tables.begin(), tables.begin()
    put(one, FIRST, "11")
    put(one, SECOND, "19")
    put(other, FIRST, "12")
    one.commit()
    assert value(reader, FIRST) == 11
    put(other, SECOND, "18")
    assert value(reader, SECOND) == 19
    conflicts(other)
    assert (value(reader, SECOND), value(reader, FIRST)) == (19, 11)
    reader.commit()


def pmp_a_predicate_shows_one_state(tables: Tables) -> None:
    """PMP: predicate-many-preceders."""
    reader = tables.begin()
    assert reader.sql("select * from test where value = 30").rows == ()
    tables.sql("insert into test values (3, 30)")
    assert reader.sql("select * from test where value % 3 = 0").rows == ()
    reader.commit()


def pmp_a_write_by_a_predicate_meets_those_before_it(tables: Tables) -> None:
    """PMP, with a predicate in a write."""
    one, other = tables.begin(), tables.begin()
    one.sql("update test set value = value + 10")
    assert other.sql("delete from test where value = 20 returning id").rows == ((2,),)
    one.commit()
    conflicts(other)
    assert (value(tables, FIRST), value(tables, SECOND)) == (20, 30)


def p4_no_update_is_lost(tables: Tables) -> None:
    """P4: lost update."""
    one, other = tables.begin(), tables.begin()
    assert value(one, FIRST) == value(other, FIRST) == 10
    put(one, FIRST, "11")
    put(other, FIRST, "11")
    one.commit()
    conflicts(other)


def g_single_reads_are_not_skewed(tables: Tables) -> None:
    """G-single: read skew."""
    reader, writer = tables.begin(), tables.begin()
    assert value(reader, FIRST) == 10
    put(writer, FIRST, "12")
    put(writer, SECOND, "18")
    writer.commit()
    assert value(reader, SECOND) == 20
    reader.commit()


def g_single_reads_by_predicates_are_not_skewed(tables: Tables) -> None:
    """G-single, with predicates."""
    reader = tables.begin()
    assert len(reader.sql("select * from test where value % 5 = 0")) == 2
    with tables.begin() as writer:
        put(writer, FIRST, "12")
    assert reader.sql("select * from test where value % 3 = 0").rows == ()
    reader.commit()


def g_single_a_write_by_a_predicate_is_not_skewed(tables: Tables) -> None:
    """G-single, with a predicate in a write."""
    one = tables.begin()
    assert value(one, FIRST) == 10
    with tables.begin() as writer:
        put(writer, FIRST, "12")
        put(writer, SECOND, "18")
    assert one.sql("delete from test where value = 20").changed == 1
    conflicts(one)
    assert (value(tables, FIRST), value(tables, SECOND)) == (12, 18)


def g2_item_writes_are_not_skewed(tables: Tables) -> None:
    """G2-item: write skew."""
    one, other = tables.begin(), tables.begin()
    for view in (one, other):
        assert len(view.sql("select * from test where id in (1, 2)")) == 2
    put(one, FIRST, "11")
    put(other, SECOND, "21")
    one.commit()
    conflicts(other)


def g2_there_are_no_phantoms(tables: Tables) -> None:
    """G2: write skew on a predicate."""
    one, other = tables.begin(), tables.begin()
    for view in (one, other):
        assert view.sql("select * from test where value % 3 = 0").rows == ()
    one.sql("insert into test values (3, 30)")
    other.sql("insert into test values (4, 42)")
    one.commit()
    conflicts(other)
    assert tables.sql("select id from test where value % 3 = 0").rows == ((3,),)


def g2_two_edges_a_reader_between_two_writers(tables: Tables) -> None:
    """G2 with two edges (Fekete et al.)."""
    one = tables.begin()
    assert len(one.sql("select * from test")) == 2
    with tables.begin() as writer:
        put(writer, SECOND, "value + 5")
    with tables.begin() as reader:
        assert value(reader, FIRST) == 10
        assert value(reader, SECOND) == 25
    put(one, FIRST, "0")
    conflicts(one)


SCHEDULES: list[Schedule] = [
    g0_writes_do_not_interleave,
    g1a_what_is_rolled_back_is_never_read,
    g1b_intermediate_values_are_never_read,
    g1c_information_does_not_flow_in_circles,
    otv_a_transaction_does_not_vanish_in_part,
    pmp_a_predicate_shows_one_state,
    pmp_a_write_by_a_predicate_meets_those_before_it,
    p4_no_update_is_lost,
    g_single_reads_are_not_skewed,
    g_single_reads_by_predicates_are_not_skewed,
    g_single_a_write_by_a_predicate_is_not_skewed,
    g2_item_writes_are_not_skewed,
    g2_there_are_no_phantoms,
    g2_two_edges_a_reader_between_two_writers,
]
