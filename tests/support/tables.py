"""Random schemas, rows and statements for SQL tables, in SQL that SQLite reads alike."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamydb_layers.tables import ConstraintViolationError, Tables, TablesView

__all__ = ["Drawn", "Pair"]

VALUES: dict[str, list[Any]] = {
    "int": [None, -2, *range(10)],
    "real": [None, -1.5, 0.0, 0.25, 2.0, 1e300],
    "text": [None, "", "a", "b", "c", "ab", "B c", "z", "é", "a'b", "\x01", "~", "\U0001f600"],
}
COMPARED = ["=", "<>", "<", "<=", ">", ">="]


def shown(value: Any) -> str:
    """A literal."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


@dataclass
class Shape:
    """A table of the schema."""

    name: str
    columns: dict[str, str]
    unique: list[list[str]] = field(default_factory=list)
    keyed: set[str] = field(default_factory=set)


class Drawn:
    """Draws a schema of three tables and some views, then statements over it."""

    def __init__(self, rng: random.Random) -> None:
        """Draw the shapes of the tables."""
        self.rng = rng
        self.shapes = [self._shape(name) for name in ("t0", "t1", "t2")]
        self.views: list[Shape] = []

    def schema(self) -> Iterator[str]:
        """The statements that make the tables, their indexes, and views."""
        for number, shape in enumerate(self.shapes):
            yield self._table(shape, self.shapes[:number])
        for number in range(self.rng.randrange(3)):
            shape = self.rng.choice(self.shapes)
            columns = self.rng.sample(list(shape.columns), self.rng.randrange(1, 3))
            yield f"create index i{number} on {shape.name} ({', '.join(columns)})"
        for number in range(self.rng.randrange(5)):
            yield self._view(f"v{number}")

    def _view(self, name: str) -> str:
        """CREATE VIEW over tables, or views that there are."""
        one, other = self._read(), self._read()
        columns = list(one.columns)
        mixed = [other if c in other.columns and self._rarely() else one for c in columns]
        cells = [
            f"{'y' if of is other else 'x'}.{c} as {c}"
            for of, c in zip(mixed, columns, strict=True)
        ]
        listed, table = ", ".join(columns), f"{one.name}{self._where(one)}"
        every = ", ".join(f"{c} nulls first" for c in columns)
        rest = columns[1:]
        most = ", ".join(f"max({c}) as {c}" for c in rest)
        join = self.rng.choice(["join", "left join"])
        joined = f"{one.name} x {join} {other.name} y on x.a = y.a"
        query = self.rng.choice([
            f"{name} as select * from {table}",
            f"{name} ({listed}) as select a + 1, {', '.join(rest)} from {table}",
            f"{name} ({listed}) as select {listed} from {table} union all select * from {one.name}",
            f"{name} as select distinct {listed} from {table}",
            f"{name} as select {listed} from {table} order by {every} limit 1",
            f"{name} as select a, {most} from {table} group by a",
            f"{name} as select {', '.join(cells)} from {joined}",
        ])  # fmt: skip
        sources = mixed if query.endswith(joined) else [one] * len(columns)
        kinds = {c: of.columns[c] for of, c in zip(sources, columns, strict=True)}
        self.views.append(Shape(name, kinds))
        return f"create view {query}"

    def statement(self) -> str:
        """One that writes or reads."""
        kinds = [self.insert] * 5 + [self.update] * 2 + [self.delete] + [self.query] * 4
        return self.rng.choice(kinds)()

    def insert(self) -> str:
        """INSERT of VALUES or of a query, some with ON CONFLICT and RETURNING."""
        shape = self._one()
        columns = [c for c in shape.columns if c in shape.keyed or self.rng.random() < 0.8] or ["a"]
        self.rng.shuffle(columns)
        conflict = self._conflict(shape)
        if self.rng.random() < 0.15:
            conflict = ""  # which of two rows comes first would be by chance
            other = self._read()
            cells = ", ".join(self._scalar(other, shape.columns[c], other.name) for c in columns)
            source = f"select {cells} from {other.name}{self._where(other)} "
            source += "" if " where " in source else "where true"  # SQLite's parser needs it
        else:
            rows = [
                "(" + ", ".join(shown(self._value(shape.columns[c])) for c in columns) + ")"
                for _ in range(self.rng.randrange(1, 4))
            ]
            source = "values " + ", ".join(rows)
        return (
            f"insert into {shape.name} ({', '.join(columns)}) {source}{conflict}"
            f"{self._returning(shape)}"
        )

    def update(self) -> str:
        """UPDATE; columns of keys get constants, as SQLite looks at each row by itself."""
        shape = self._one()
        columns = self.rng.sample(list(shape.columns), self.rng.randrange(1, 3))
        parts = [
            f"{c} = " + (
                shown(self._value(shape.columns[c])) if c in shape.keyed
                else self._scalar(shape, shape.columns[c], shape.name)
            )
            for c in columns
        ]  # fmt: skip
        return (
            f"update {shape.name} set {', '.join(parts)}{self._where(shape)}"
            f"{self._returning(shape)}"
        )

    def delete(self) -> str:
        """DELETE."""
        shape = self._one()
        where = f" where {self._comparison(shape, shape.name)}"
        return f"delete from {shape.name}{where}{self._returning(shape)}"

    def query(self) -> str:
        """SELECT: of one table, a join, groups, or with a query within."""
        kinds = [self._plain, self._join, self._grouped, self._within, self._union]
        return self.rng.choice(kinds)()

    def _plain(self) -> str:
        shape = self._read()
        cells = ", ".join(f"{c} as {c}" for c in shape.columns)
        every = ", ".join(f"{c} nulls first" for c in shape.columns)
        limit = f" order by {every} limit {self.rng.randrange(4)}" if self._rarely() else ""
        return f"select {cells} from {shape.name}{self._where(shape)}{limit}"

    def _join(self) -> str:
        left, right = self._read(), self._read()
        kind = self.rng.choice(["join", "left join", "right join", "full join", "cross join"])
        on = ""
        if kind != "cross join":
            same = [(a, b) for a, k in left.columns.items() for b, m in right.columns.items()
                    if k == m]  # fmt: skip
            a, b = self.rng.choice(same)
            on = f" on x.{a} = y.{b}"
            if self._rarely():
                on += " and " + self._condition(self.rng.choice([left, right]), None)
        cells = [f"x.{c}" for c in left.columns] + [f"y.{c}" for c in right.columns]
        named = ", ".join(f"{cell} as c{n}" for n, cell in enumerate(cells))
        where = self._where(left, "x") if self._rarely() else self._where(right, "y")
        made = f"select {named} from {left.name} x {kind} {right.name} y{on}{where}"
        return made.replace("?left?", "x").replace("?right?", "y")

    def _grouped(self) -> str:
        shape = self._read()
        by = self.rng.choice(list(shape.columns))
        cell = self._scalar(shape, "int", shape.name)
        return (
            f"select {by}, count(*), count({cell}), sum({cell}), min({by}), max({cell}) "
            f"from {shape.name}{self._where(shape)} group by {by} having count(*) >= 1"
        )

    def _within(self) -> str:
        shape, other = self._read(), self._read()
        kind = self.rng.choice(["int", "text"])
        mine = self._scalar(shape, kind, shape.name)
        column = self._column(other, kind)
        exists = self.rng.choice(["in", "not in"])
        inner = f"select z.{column} from {other.name} z{self._where(other, 'z')}"
        cells = ", ".join(shape.columns)
        if self._rarely():
            return f"with q as ({inner}) select count(*), count({column}) from q"
        return f"select {cells} from {shape.name} where {mine} {exists} ({inner})"

    def _union(self) -> str:
        one, other = self._read(), self._read()
        kind = self.rng.choice(["int", "text"])
        word = self.rng.choice(["union", "union all", "except", "intersect"])
        first = self._scalar(one, kind, one.name)
        second = self._scalar(other, kind, other.name)
        return (
            f"select {first} as a from {one.name}{self._where(one)} {word} "
            f"select {second} from {other.name}{self._where(other)}"
        )

    def _shape(self, name: str) -> Shape:
        columns = {"a": "int", "b": self.rng.choice(["int", "text"]), "c": "text", "d": "real"}
        return Shape(name, dict(list(columns.items())[: self.rng.randrange(3, 5)]))

    def _table(self, shape: Shape, before: Sequence[Shape]) -> str:
        parts = [f"{name} {kind}{self._more(kind)}" for name, kind in shape.columns.items()]
        key = self.rng.sample(list(shape.columns), self.rng.randrange(3))
        if key:
            parts = [p if p.partition(" ")[0] not in key or "not null" in p else
                     p.replace(" default", " not null default") if "default" in p
                     else f"{p} not null" for p in parts]  # fmt: skip
            parts.append(f"primary key ({', '.join(key)})")
            shape.unique.append(key)
        if self._rarely():
            columns = self.rng.sample(list(shape.columns), self.rng.randrange(1, 3))
            if set(columns) != set(key):
                parts.append(f"unique ({', '.join(columns)})")
                shape.unique.append(columns)
        if self.rng.random() < 0.15:
            parts.append(f"check ({self._condition(shape, shape.name)})")
        shape.keyed = {name for columns in shape.unique for name in columns}
        parents = [(p, columns) for p in [*before, shape] for columns in p.unique]
        if parents and self.rng.random() < 0.5:
            parts += self._reference(shape, *self.rng.choice(parents))
        return f"create table {shape.name} ({', '.join(parts)})"

    def _more(self, kind: str) -> str:
        default = f" default {shown(self.rng.choice(VALUES[kind][1:]))}"
        return self.rng.choice(["", "", "", " not null", default])

    def _reference(self, shape: Shape, parent: Shape, theirs: list[str]) -> list[str]:
        mine: list[str] = []
        for column in theirs:
            fit = [c for c, kind in shape.columns.items()
                   if kind == parent.columns[column] and c not in mine]  # fmt: skip
            if not fit:
                return []
            mine.append(self.rng.choice(fit))
        action = self.rng.choice(["", " on delete cascade", " on delete set null"])
        key, target = ", ".join(mine), ", ".join(theirs)
        return [f"foreign key ({key}) references {parent.name} ({target}){action}"]

    def _conflict(self, shape: Shape) -> str:
        draw = self.rng.random()
        if draw < 0.6 or not shape.unique:
            return ""
        target = f"({', '.join(self.rng.choice(shape.unique))})"
        if draw < 0.8:
            return f" on conflict {self.rng.choice([target, ''])} do nothing"
        if len(shape.unique) > 1:  # SQLite looks at the others first
            return f" on conflict {target} do nothing"
        free = [c for c in shape.columns if c not in shape.keyed]
        if not free:
            return ""
        column = self.rng.choice(free)
        value = self.rng.choice([f"excluded.{column}", f"{shape.name}.{column}",
                                 shown(self._value(shape.columns[column]))])  # fmt: skip
        where = self._where(shape, shape.name) if self._rarely() else ""
        return f" on conflict {target} do update set {column} = {value}{where}"

    def _returning(self, shape: Shape) -> str:
        if not self._rarely():
            return ""
        return self.rng.choice([" returning *", f" returning {', '.join(shape.columns)}"])

    def _where(self, shape: Shape, alias: str | None = None) -> str:
        if self.rng.random() < 0.25:
            return ""
        return f" where {self._condition(shape, alias or shape.name)}"

    def _condition(self, shape: Shape, alias: str | None, depth: int = 2) -> str:
        alias = alias or self.rng.choice(["?left?", "?right?"])
        if alias == "?right?" or alias == "?left?":
            return f"{alias}.a {self.rng.choice(COMPARED)} {shown(self._value('int'))}"
        draw = self.rng.random()
        if depth and draw < 0.45:
            word = self.rng.choice(["and", "and", "or"])
            left = self._condition(shape, alias, depth - 1)
            return f"({left} {word} {self._condition(shape, alias, depth - 1)})"
        if depth and draw < 0.5:
            return f"not ({self._condition(shape, alias, depth - 1)})"
        return self._comparison(shape, alias)

    def _comparison(self, shape: Shape, alias: str) -> str:
        column = self.rng.choice(list(shape.columns))
        kind = shape.columns[column]
        name = f"{alias}.{column}" if self.rng.random() < 0.7 else column
        if alias in {"x", "y", "z"}:
            name = f"{alias}.{column}"
        draw = self.rng.random()
        if draw < 0.55:
            value = shown(self._value(kind))
            operator = self.rng.choice(COMPARED)
            return self.rng.choice([f"{name} {operator} {value}", f"{value} {operator} {name}"])
        if draw < 0.65:
            low, high = (shown(self._value(kind)) for _ in range(2))
            return f"{name} between {low} and {high}"
        if draw < 0.8:
            values = ", ".join(shown(self._value(kind)) for _ in range(self.rng.randrange(1, 4)))
            return f"{name} {self.rng.choice(['', 'not '])}in ({values})"
        if draw < 0.9:
            return f"{name} is {self.rng.choice(['', 'not '])}null"
        return f"{self._scalar(shape, kind, alias)} {self.rng.choice(COMPARED)} {name}"

    def _scalar(self, shape: Shape, kind: str, alias: str, depth: int = 1) -> str:
        """An expression of a kind over a table's columns."""
        fit = [f"{alias}.{c}" for c, k in shape.columns.items() if k == kind]
        plain = self.rng.choice([*fit, *fit, shown(self.rng.choice(VALUES[kind][1:]))])
        if not depth or self.rng.random() < 0.4:
            return plain
        one, other = (self._scalar(shape, kind, alias, depth - 1) for _ in range(2))
        ways = [
            f"coalesce({one}, {other})",
            f"case when {self._comparison(shape, alias)} then {one} else {other} end",
        ]
        if kind == "int":
            ways += [f"({one} {self.rng.choice('+-*')} {other})", f"abs({one})"]
            ways += [f"length({self._scalar(shape, 'text', alias, 0)})"]
        if kind == "text":
            ways.append(f"({one} || {other})")
        return self.rng.choice(ways)

    def _column(self, shape: Shape, kind: str) -> str:
        return self.rng.choice([c for c, k in shape.columns.items() if k == kind])

    def _value(self, kind: str) -> Any:
        return self.rng.choice(VALUES[kind])

    def _one(self) -> Shape:
        return self.rng.choice(self.shapes)

    def _read(self) -> Shape:
        """A table or a view."""
        return self.rng.choice([*self.shapes, *self.views])

    def _rarely(self) -> bool:
        return self.rng.random() < 0.4


class Pair:
    """Tables and SQLite, which are told the same and must answer the same."""

    def __init__(self, tables: Tables) -> None:
        """Open SQLite in memory."""
        self.tables = tables
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None)
        self.sqlite.execute("pragma foreign_keys = on")

    def same(self, sql: str) -> Any:
        """Execute a statement in both; return the rows, sorted, or the kind of the violation."""
        mine = self.mine(sql, self.tables)
        if mine == "on conflict":  # SQLite updates a row twice in one statement, we do not
            return mine
        theirs = self.theirs(sql + (" strict" if sql.startswith("create table") else ""))
        assert mine == theirs, sql
        return mine

    def close(self) -> None:
        """Close both."""
        self.sqlite.close()
        self.tables.close()

    def mine(self, sql: str, view: Tables | TablesView) -> Any:
        """The answer of the tables."""
        try:
            return normal(view.sql(sql).rows)
        except ConstraintViolationError as error:
            return "on conflict" if error.constraint == "on conflict" else "violated"

    def theirs(self, sql: str) -> Any:
        """The answer of SQLite."""
        try:
            return normal(self.sqlite.execute(sql).fetchall())
        except sqlite3.IntegrityError:
            return "violated"


def normal(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows in an order of their own; SQLite's booleans are numbers, and some reals integers."""
    cells = [tuple(float(c) if isinstance(c, bool | int) else c for c in row) for row in rows]
    return sorted(cells, key=lambda row: [(c is not None, str(type(c)), c) for c in row])
