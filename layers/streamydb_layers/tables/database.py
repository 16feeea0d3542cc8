"""Tables of a database: statements, transactions of several, and functions that are tried again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from sqlglot import exp

from streamydb.client import Client
from streamydb.client import View as ClientView
from streamydb_layers.names import check_name
from streamydb_layers.tables.clock import Clock
from streamydb_layers.tables.errors import (
    StatementInvalidError,
    StatementUnsupportedError,
    TransactionForeignError,
)
from streamydb_layers.tables.keys import Keys
from streamydb_layers.tables.memory import MemoryStore
from streamydb_layers.tables.parsing import (
    Parameters,
    Release,
    Savepoint,
    bind,
    is_control,
    is_saving,
    parse,
    unsupported,
)
from streamydb_layers.tables.schema import Relation, Table, View, relation_of
from streamydb_layers.tables.statements import Result, execute
from streamydb_layers.tables.stores import ClientStore, ViewTransaction
from streamydb_layers.tables.transaction import Overlay, Snapshot, Store, Transaction
from streamydb_layers.tables.workbench import Workbenches

_T = TypeVar("_T")


class TablesView:
    """Tables in one transaction."""

    def __init__(self, transaction: Transaction, keys: Keys, benches: Workbenches) -> None:
        self._transaction, self._keys, self._benches = transaction, keys, benches
        self._clock = Clock()

    def sql(self, sql: str, params: Parameters = ()) -> Result:
        """Execute one statement; if it fails, it has written nothing.

        Args:
            sql: the statement.
            params: values of `?` or `$1`; a mapping has those of `$name`.

        Raises:
            SqlError: it cannot be executed.
        """
        return self.execute(bind(_single(sql), params))

    def execute(self, statement: exp.Expr) -> Result:
        """Execute a statement that is parsed, without parameters."""
        if is_control(statement):
            raise unsupported(statement, "This transaction begins and ends in the program.")
        if is_saving(statement):
            raise StatementInvalidError("There is no transaction that BEGIN or `begin` has opened.")
        with self._benches.one(self._clock) as bench:
            return execute(statement, self._keys, self._transaction, bench)

    def tables(self) -> list[Table]:
        """The definitions of all tables, by name."""
        return [each for each in self.relations() if isinstance(each, Table)]

    def views(self) -> list[View]:
        """The definitions of all views, by name."""
        return [each for each in self.relations() if isinstance(each, View)]

    def relations(self) -> list[Relation]:
        """The definitions of all tables and views, by name."""
        return [relation_of(value) for _, value in self._transaction.scan(*self._keys.tables())]

    def table(self, name: str) -> Table | None:
        """The definition of a table, if there is one."""
        key = self._keys.table(name)
        stored = self._transaction.read([key])[key]
        found = None if stored is None else relation_of(stored)
        return found if isinstance(found, Table) else None


class OpenTransaction(TablesView):
    """A transaction of several statements; as a context manager it commits, or rolls back."""

    def __init__(self, snapshot: Snapshot, keys: Keys, benches: Workbenches) -> None:
        self._process = os.getpid()
        self._snapshot: Snapshot | None = snapshot
        self._overlay = Overlay(snapshot)
        self._savepoints: list[tuple[str, dict[str, Any]]] = []
        super().__init__(self._overlay, keys, benches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._snapshot is not None:
            self.commit()
        self._snapshot = None

    def execute(self, statement: exp.Expr) -> Result:
        """Execute a statement that is parsed, without parameters."""
        self._require_open()
        if is_saving(statement):
            name = (statement.args.get("savepoint") or statement.this).name
            if isinstance(statement, Savepoint):
                self.savepoint(name)
            elif isinstance(statement, Release):
                self.release(name)
            else:
                self.rollback_to(name)
            return Result()
        return super().execute(statement)

    def savepoint(self, name: str) -> None:
        """Remember what has been written by now; a later one of the same name hides it."""
        self._require_open()
        self._savepoints.append((name.lower(), dict(self._overlay.writes)))

    def rollback_to(self, name: str) -> None:
        """Forget what was written after a savepoint, and the savepoints after it.
        Raises StatementInvalidError: there is no such savepoint.
        """
        place = self._saved(name)
        del self._savepoints[place + 1 :]
        self._overlay.writes = dict(self._savepoints[place][1])

    def release(self, name: str) -> None:
        """Forget a savepoint and those after it; what was written stays.
        Raises StatementInvalidError: there is no such savepoint.
        """
        del self._savepoints[self._saved(name) :]

    def _saved(self, name: str) -> int:
        self._require_open()
        for place in reversed(range(len(self._savepoints))):
            if self._savepoints[place][0] == name.lower():
                return place
        raise StatementInvalidError(f"There is no savepoint {name}.")

    def commit(self) -> None:
        """Commit all statements, or none.
        Raises TransactionConflictError: others have written what was read; begin again;
        TransactionForeignError: it was begun before a fork, by the parent.
        """
        snapshot, self._snapshot = self._require_open(), None
        snapshot.commit(self._overlay.writes)

    def rollback(self) -> None:
        """Forget all statements."""
        self._snapshot = None

    @property
    def writes(self) -> int:
        """The number of keys that a commit would write."""
        return len(self._overlay.writes)

    def _require_open(self) -> Snapshot:
        if self._snapshot is None:
            raise StatementInvalidError("The transaction has ended: begin another one.")
        if self._process != os.getpid():
            raise TransactionForeignError
        return self._snapshot


class Tables:
    """SQL tables on a blocking client; threads may share it.

    shop = Tables(client, "shop")
    shop.sql("insert into orders values (?, ?)", [7, "open"])
    """

    def __init__(self, client: Client | Store, name: str = "main") -> None:
        """Nothing is sent yet.

        Args:
            client: of the database; or a store.
            name: of these tables, a part of all their keys.

        Raises:
            InvalidNameError: the name cannot be part of a key.
        """
        self._keys = Keys(check_name(name))
        self._store = ClientStore(client) if isinstance(client, Client) else client
        self._benches = Workbenches()

    @classmethod
    def in_memory(cls, name: str = "main") -> Self:
        """Tables in this process, for tests."""
        return cls(MemoryStore(), name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what queries run in; the client stays its owner's."""
        self._benches.close()

    def sql(self, sql: str, params: Parameters = ()) -> Result:
        """Execute one statement as a transaction, again after a conflict.

        Args:
            sql: the statement.
            params: values of `?` or `$1`; a mapping has those of `$name`.

        Raises:
            SqlError: it cannot be executed.
        """
        statement = bind(_single(sql), params)
        return self.run(lambda view: view.execute(statement))

    def script(self, sql: str) -> list[Result]:
        """Execute statements one by one; BEGIN and COMMIT make one transaction of several.
        Raises SqlError: one cannot be executed; what was committed before stays.
        """
        done: list[Result] = []
        opened: OpenTransaction | None = None
        for statement in parse(sql):
            if is_control(statement):
                opened = self.controlled(statement, opened)
            elif opened is not None:
                done.append(opened.execute(statement))
            else:
                done.append(self.run(partial(TablesView.execute, statement=statement)))
        if opened is not None:
            raise StatementInvalidError("The transaction was not committed: COMMIT is missing.")
        return done

    def controlled(
        self, statement: exp.Expr, opened: OpenTransaction | None
    ) -> OpenTransaction | None:
        """Obey BEGIN, COMMIT or ROLLBACK; return the transaction that is open then."""
        if isinstance(statement, exp.Transaction):
            if opened is not None:
                raise StatementUnsupportedError("There is a transaction already.")
            return self.begin()
        if opened is None:
            raise StatementInvalidError("There is no transaction.")
        if isinstance(statement, exp.Rollback):
            opened.rollback()
        else:
            opened.commit()
        return None

    def begin(self) -> OpenTransaction:
        """Begin a transaction of several statements: a context manager, or `commit`."""
        return OpenTransaction(self._store.begin(), self._keys, self._benches)

    def run(self, function: Callable[[TablesView], _T]) -> _T:
        """Execute a function as a transaction, again after a conflict; it may run several times.
        Raises TransactionConflictError: there were too many conflicts; SqlError: a statement cannot
        be executed.
        """
        return self._store.run(lambda transaction: function(self._view(transaction)))

    def within(self, view: ClientView) -> TablesView:
        """The tables in a function under the client's `run`: part of its transaction."""
        return self._view(ViewTransaction(view))

    def _view(self, transaction: Transaction) -> TablesView:
        return TablesView(transaction, self._keys, self._benches)

    def tables(self) -> list[Table]:
        """The definitions of all tables, by name."""
        return self.run(lambda view: view.tables())

    def views(self) -> list[View]:
        """The definitions of all views, by name."""
        return self.run(lambda view: view.views())

    def relations(self) -> list[Relation]:
        """The definitions of all tables and views, by name."""
        return self.run(lambda view: view.relations())

    def table(self, name: str) -> Table | None:
        """The definition of a table, if there is one."""
        return self.run(lambda view: view.table(name))


def _single(sql: str) -> Any:
    found = parse(sql)
    if len(found) != 1:
        raise StatementInvalidError(
            f"There are {len(found)} statements; give one, or use `script`."
        )
    return found[0]
