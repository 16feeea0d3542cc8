"""DuckDB's own parse trees: of the text of a query or a write, and the text of a tree.

What a statement means is what DuckDB's parser makes of the user's text: a query is executed as it
was written, and a write is put together of the parts of that tree. The text of a tree is parsed
again, and has to give the same tree.

A tree is the JSON of `json_serialize_sql`: a query has a `type` (`SELECT_NODE`, ...), an expression
a `class`. Trees are shared: who changes one takes a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from streamydb_layers.tables.errors import StatementInvalidError, StatementUnsupportedError
from streamydb_layers.tables.parsers import PARSERS

Tree: TypeAlias = dict[str, Any]
"""A node of a parse tree."""

_KEPT: Final = 512
_KEPT_CHARACTERS: Final = 20_000
_MEANINGLESS: Final = frozenset(
    {"query_location", "query_location_length", "is_operator", "has_ignore_nulls"}
)


def query_tree(sql: str) -> Tree | None:
    """The tree of a query; None if DuckDB has none for it, as for PIVOT."""
    return _kept_tree(sql) if len(sql) <= _KEPT_CHARACTERS else _tree(sql)


def write_tree(sql: str) -> Tree | None:
    """The tree of an INSERT, UPDATE or DELETE: DuckDB shows it as a part of a WITH.

    It may be changed, as where it names tables is; the one that is kept for the next time is not.
    """
    whole = query_tree(f"with streamydb_write as (\n{sql}\n) select 1")
    if whole is None:
        return None
    [part] = whole["cte_map"]["map"]
    return copied(part["value"]["query_node"])


def expression(sql: str) -> Tree:
    """The tree of an expression that the catalog keeps."""
    whole = query_tree(f"select {sql}")
    if whole is None:
        raise _unsupported(sql)
    [found] = whole["select_list"]
    return found  # type: ignore[no-any-return]


def is_expression(sql: str) -> bool:
    """Return True if a text is one expression of DuckDB's."""
    whole = query_tree(f"select {sql}")
    return whole is not None and len(whole["select_list"]) == 1 and not whole["modifiers"]


def text_of(tree: Tree) -> str:
    """The text of a query's tree.
    Raises StatementUnsupportedError: DuckDB's text of it means something else.
    """
    key = msgspec.json.encode(_statement(tree))
    return _kept_text(key) if len(key) <= _KEPT_CHARACTERS else _text(key)


def text_of_expression(node: Tree) -> str:
    """The text of an expression, which is the name of a column that has no other."""
    return text_of(select([node], empty())).removeprefix("SELECT ")


def walk(node: Any) -> Iterator[Tree]:
    """Yield all nodes of a tree, from the root down."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from walk(value)


def copied(tree: Tree) -> Tree:
    """A tree that may be changed."""
    return deepcopy(tree)


def is_of(node: Tree | None, name: str) -> bool:
    """Return True if a node is of a class, or a type of query or source."""
    return node is not None and name in (node.get("class"), node.get("type"))


def alias_of(source: Tree) -> str:
    """The name that a query gives a table."""
    return str(source["alias"] or source["table_name"])


def columns(tree: Any) -> Iterator[Tree]:
    """Yield the columns that parts of a tree name; the parameters of lambdas are none."""
    if isinstance(tree, list):
        for each in tree:
            yield from columns(each)
    elif isinstance(tree, dict) and is_of(tree, "LAMBDA"):
        bound = {node["column_names"][-1].lower() for node in columns(tree["lhs"])}
        for node in columns(tree["expr"]):
            if len(node["column_names"]) > 1 or node["column_names"][0].lower() not in bound:
                yield node
    elif isinstance(tree, dict):
        if is_of(tree, "COLUMN_REF"):
            yield tree
        for value in tree.values():
            yield from columns(value)


def reference(*path: str) -> Tree:
    """A column by its name, or by those of its table and itself."""
    made = copied(expression("a"))
    made["column_names"] = list(path)
    return made


def cast(node: Tree, kind: str) -> Tree:
    """A value as one of a type."""
    made = copied(expression(f"cast(null as {kind})"))
    made["child"] = node
    return made


def call(function: str, node: Tree) -> Tree:
    """A call of a function with one value."""
    made = copied(expression(f"{function}(null)"))
    made["arguments"][0]["expression"] = node
    return made


def joined(left: Tree, right: Tree, condition: Tree) -> Tree:
    """The rows of two sources that fulfil a condition."""
    made = copied(_source("a join b on true"))
    made |= {"left": left, "right": right, "condition": condition}
    return made


def cross(left: Tree, right: Tree) -> Tree:
    """All pairs of rows of two sources."""
    made = copied(_source("a cross join b"))
    made |= {"left": left, "right": right}
    return made


def names_of(table: str, alias: str) -> Tree:
    """A table as a source."""
    made = copied(_source("a"))
    made |= {"table_name": table, "alias": alias, "qualified_name": {"path": [table]}}
    return made


def empty() -> Tree:
    """No source."""
    return copied((query_tree("select 1") or {})["from_table"])


def select(cells: list[Tree], source: Tree, where: Tree | None = None) -> Tree:
    """A SELECT."""
    made = copied(query_tree("select 1") or {})
    made |= {"select_list": cells, "from_table": source, "where_clause": where}
    return made


def values_in(rows: list[list[Tree]]) -> Tree:
    """Rows of VALUES as a query."""
    made = copied(query_tree("values (1)") or {})
    made["from_table"]["values"] = rows
    return made


def both(condition: Tree | None, other: Tree) -> Tree:
    """The condition that two are true; the first one may be none."""
    if condition is None:
        return other
    made = copied(expression("true and true"))
    made["children"] = [condition, other]
    return made


def equal(left: Tree, right: Tree) -> Tree:
    """The condition that two values are equal."""
    made = copied(expression("a = b"))
    made |= {"left": left, "right": right}
    return made


def ordered(query: Tree) -> Tree:
    """A query in the order of its first column."""
    modifiers = copied(query_tree("select 1 order by 1") or {})["modifiers"]
    return {**query, "modifiers": modifiers}


def parameters(tree: Any) -> list[Tree]:
    """The parameters of a tree."""
    return [node for node in walk(tree) if is_of(node, "PARAMETER")]


def spliced(sql: str, tree: Tree, literals: Mapping[str, str]) -> str:
    """The text of a tree with the literals of values in the places of its parameters."""
    places = {node["query_location"]: node for node in parameters(tree)}
    made = sql.encode()
    for at, node in sorted(places.items(), reverse=True):
        behind = at + node["query_location_length"]
        made = made[:at] + _value(literals, node).encode() + made[behind:]
    return made.decode()


def _value(literals: Mapping[str, str], node: Tree) -> str:
    try:
        return literals[node["identifier"]]
    except KeyError:
        raise StatementInvalidError(
            f"There is no value for parameter {node['identifier']}: a statement has ? or $1, "
            "not both ? and $1."
        ) from None


def _source(sql: str) -> Tree:
    found: Tree = (query_tree(f"from {sql}") or {})["from_table"]
    return found


def _statement(node: Tree) -> Tree:
    return {"error": False, "statements": [{"node": node, "named_param_map": _named(node)}]}


def _named(node: Tree) -> list[Tree]:
    names = dict.fromkeys(each["identifier"] for each in parameters(node))
    return [{"key": name, "value": number} for number, name in enumerate(names, 1)]


def _meaning(node: Any) -> Any:
    """A tree without what has no meaning: places, how a call is written, AND within AND.

    Rows of VALUES are the same as a source of them, and a name of an argument is one wherever the
    parser puts it.
    """
    if isinstance(node, list):
        return [_meaning(each) for each in node]
    if not isinstance(node, dict):
        return node
    if is_of(node, "SUBQUERY") and node.get("alias") == "valueslist":
        return _meaning(node["subquery"]["node"]["from_table"])
    made = {name: _meaning(value) for name, value in node.items() if name not in _MEANINGLESS}
    if set(node) == {"name", "expression"}:
        made["name"] = node["name"] or node["expression"]["alias"]
        made["expression"]["alias"] = ""
    if is_of(node, "CONJUNCTION"):
        made["children"] = list(_flat(made))
    return made


def _flat(node: Tree) -> Iterator[Tree]:
    """Yield the conditions that one kind of conjunction joins."""
    for each in node["children"]:
        if is_of(each, node["type"]):
            yield from _flat(each)
        else:
            yield each


def _tree(sql: str) -> Tree | None:
    found = msgspec.json.decode(_one("select json_serialize_sql(?::varchar)", sql))
    if found["error"]:
        return None
    [statement] = found["statements"]
    node: Tree = statement["node"]
    return node


def _text(key: bytes) -> str:
    made = _one("select json_deserialize_sql(?::json)", key.decode())
    again = _tree(made)
    wanted = msgspec.json.decode(key)["statements"][0]["node"]
    if again is None or _meaning(again) != _meaning(wanted):
        raise _unsupported(made)
    return made


_kept_tree: Final[Callable[[str], Tree | None]] = lru_cache(maxsize=_KEPT)(_tree)
_kept_text: Final[Callable[[bytes], str]] = lru_cache(maxsize=_KEPT)(_text)


def _one(sql: str, value: str) -> str:
    parser = PARSERS.take()
    try:
        row = parser.execute(sql, [value]).fetchone()
    finally:
        PARSERS.give(parser)
    return str(row[0]) if row else ""


def _unsupported(sql: str) -> StatementUnsupportedError:
    shown = sql if len(sql) < 60 else sql[:57] + "..."
    return StatementUnsupportedError(
        f"Tables cannot put this together as DuckDB understands it: {shown}"
    )
