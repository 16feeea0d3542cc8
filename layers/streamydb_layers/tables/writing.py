"""Write rows with their index entries, and keep the constraints.

Constraints hold at the end of each statement: a statement may move unique values around among rows,
and delete a parent together with its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from streamydb.client import new_id
from streamydb_layers.documents.encoding import encode
from streamydb_layers.tables.errors import ConstraintViolationError
from streamydb_layers.tables.keys import Keys, encoded, part
from streamydb_layers.tables.reading import StoredRow
from streamydb_layers.tables.schema import ForeignKey, Index, Row, Table
from streamydb_layers.tables.transaction import Overlay


class _Change(NamedTuple):
    table: Table
    removed: list[StoredRow]
    added: list[StoredRow]


class Writer:
    """Writes of one statement.

    Args:
        keys: of the database of tables.
        transaction: the statement's own overlay.
        find: the table of a name.
        check: holds rows against NOT NULL and the table's checks.
    """

    def __init__(
        self, keys: Keys, transaction: Overlay, find: Callable[[str], Table | None],
        check: Callable[[Table, Sequence[Row]], None],
    ) -> None:  # fmt: skip
        self._keys, self._transaction = keys, transaction
        self._find, self._check = find, check
        self._changes: list[_Change] = []

    def write(
        self, table: Table, removed: Sequence[StoredRow], added: Sequence[Row]
    ) -> list[StoredRow]:
        """Remove rows, then add some; `finish` looks at the references.

        Args:
            table: whose rows they are.
            removed: what goes, or changes.
            added: the new states of those that change, in their order, then new rows.

        Returns: what was added.

        Raises:
            ConstraintViolationError: a unique value is there already.
            DataRefusedError: a row or key cannot be stored.
        """
        for old in removed:
            for key, *_ in self._kept(table, old):
                self._transaction.delete(key)
        rows = [table.loaded(table.stored_row(row)) for row in added]
        before = [*removed, *[None] * len(rows)]
        made = [
            StoredRow(self._key(table, row, old), row)
            for row, old in zip(rows, before, strict=False)
        ]
        self._prefetch(table, made)
        for new in made:
            self._add(table, new)
        self._changes.append(_Change(table, list(removed), made))
        return made

    def finish(self) -> None:
        """Follow the references. Raises ConstraintViolationError: a row has no parent."""
        done = 0
        while done < len(self._changes):
            self._cascade(self._changes[done])
            done += 1
        for change in self._changes:
            self._check_children(change)
            self._check_parents(change)

    def holder(self, table: Table, index: Index | None, row: Row) -> str | None:
        """The key with which a row takes its unique values; None if it has a NULL among them."""
        if index is None:
            return self._keys.row(table, encoded(table, table.primary_key, row))
        if any(row[name] is None for name in index.columns):
            return None
        return self._keys.entry(table, index, row, "")

    def stored(self, table: Table, index: Index | None, holders: Iterable[str]) -> dict[str, str]:
        """The rows' keys behind the holders that exist."""
        found = self._transaction.read(list(holders))
        prefix = self._keys.rows(table)
        return {
            holder: holder.removeprefix(prefix) if index is None else value
            for holder, value in found.items()
            if value is not None
        }

    def rows(self, table: Table, keys: Sequence[str]) -> dict[str, StoredRow]:
        """Read rows by their keys."""
        full = {self._keys.row(table, key): key for key in keys}
        read = self._transaction.read(list(full)) if full else {}
        return {
            key: StoredRow(key, table.loaded(read[whole]))
            for whole, key in full.items()
            if read[whole] is not None
        }

    def _key(self, table: Table, row: Row, old: StoredRow | None) -> str:
        """The part of a row's key behind the table's."""
        if table.primary_key:
            return encoded(table, table.primary_key, row)
        return encode([new_id()], [False]) if old is None else old.key

    def _kept(self, table: Table, row: StoredRow) -> Iterable[tuple[str, object, Index | None]]:
        """The keys of a row: its own, and its entries."""
        yield self._keys.row(table, row.key), table.stored_row(row.values), None
        for index in table.indexes:
            yield self._keys.entry(table, index, row.values, row.key), row.key, index

    def _prefetch(self, table: Table, rows: Sequence[StoredRow]) -> None:
        """Read the keys whose absence matters in one request."""
        keys = [
            key for row in rows for key, _, index in self._kept(table, row)
            if index is None or index.unique
        ]  # fmt: skip
        if keys:
            self._transaction.read(keys)

    def _add(self, table: Table, row: StoredRow) -> None:
        for key, value, index in self._kept(table, row):
            unique = index is None or index.unique
            if unique and self._transaction.read([key])[key] is not None:
                columns = table.primary_key if index is None else index.columns
                name = f"{table.name}_pkey" if index is None else index.name
                shown = ", ".join(f"{column} = {row.values[column]!r}" for column in columns)
                raise ConstraintViolationError(
                    "unique", name, table.name, f"There is a row with {shown} already"
                )
            self._transaction.put(key, value)

    def _cascade(self, change: _Change) -> None:
        """Delete or change the rows that referred to what is gone, where their key says so."""
        if change.added:
            return  # an update: ON UPDATE is NO ACTION, which is checked in the end
        for child, key in self._references(change.table):
            gone = [row for row in change.removed if self._is_gone(change.table, key, row)]
            found = [row for old in gone for row in self._children(child, key, old)]
            children = list({row.key: row for row in found}.values())
            if key.on_delete == "no action" or not children:
                continue
            nulls = dict.fromkeys(key.columns)
            changed = [{**row.values, **nulls} for row in children]
            if key.on_delete == "cascade":
                self.write(child, children, [])
                continue
            self._check(child, changed)
            self.write(child, children, changed)

    def _check_children(self, change: _Change) -> None:
        for child, key in self._references(change.table):
            for row in change.removed:
                if self._is_gone(change.table, key, row) and self._children(child, key, row):
                    raise ConstraintViolationError(
                        "foreign key", key.name, child.name,
                        f"Rows of {child.name} refer to {_shown(row.values, key.parent_columns)}"
                        f" of {change.table.name}",
                    )  # fmt: skip

    def _check_parents(self, change: _Change) -> None:
        table = change.table
        current = self.rows(table, [row.key for row in change.added])
        for key in table.foreign_keys:
            parent = self._parent(table, key)
            for row in change.added:
                values = [row.values[name] for name in key.columns]
                if current.get(row.key) != row or any(value is None for value in values):
                    continue
                wanted = dict(zip(key.parent_columns, values, strict=True))
                if not self._exists(parent, key, wanted):
                    raise ConstraintViolationError(
                        "foreign key", key.name, table.name,
                        f"{parent.name} has no row with {_shown(wanted, key.parent_columns)}",
                    )  # fmt: skip

    def _references(self, table: Table) -> list[tuple[Table, ForeignKey]]:
        """The foreign keys that refer to a table."""
        children = [found for name in table.children if (found := self._find(name))]
        return [
            (child, key) for child in children for key in child.foreign_keys
            if key.parent.lower() == table.name.lower()
        ]  # fmt: skip

    def _parent(self, table: Table, key: ForeignKey) -> Table:
        found = table if key.parent.lower() == table.name.lower() else self._find(key.parent)
        if found is None:  # a table with children cannot be dropped
            raise AssertionError(f"{key.name} refers to {key.parent}, which is not there")
        return found

    def _is_gone(self, parent: Table, key: ForeignKey, row: StoredRow) -> bool:
        """Return True if no row of the parent has the values of a removed row any more."""
        if any(row.values[name] is None for name in key.parent_columns):
            return False
        return not self._exists(parent, key, row.values)

    def _exists(self, parent: Table, key: ForeignKey, values: Row) -> bool:
        own = set(parent.primary_key) == set(key.parent_columns)
        index = None if own else parent.unique_on(key.parent_columns)
        holder = self.holder(parent, index, values)
        return holder is not None and self._transaction.read([holder])[holder] is not None

    def _children(self, child: Table, key: ForeignKey, parent: StoredRow) -> list[StoredRow]:
        """The rows that refer to a row, by an index that begins with their columns."""
        equal = [
            column.kind.key(parent.values[theirs])
            for mine, theirs in zip(key.columns, key.parent_columns, strict=True)
            if (column := child.column(mine))
        ]
        size = len(key.columns)
        if child.primary_key[:size] == key.columns:
            prefix = self._keys.rows(child)
            found = self._transaction.scan(*part(prefix, equal, None))
            return [StoredRow(k.removeprefix(prefix), child.loaded(v)) for k, v in found]
        index = next(each for each in child.indexes if each.columns[:size] == key.columns)
        entries = self._transaction.scan(*part(self._keys.entries(index), equal, None))
        return list(self.rows(child, [value for _, value in entries]).values())


def _shown(row: Row, columns: Sequence[str]) -> str:
    return ", ".join(f"{name} = {row[name]!r}" for name in columns)
