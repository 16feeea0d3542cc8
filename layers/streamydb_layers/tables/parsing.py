"""Parse SQL by sqlglot, in DuckDB's dialect; put the values of parameters in.

A parameter becomes a literal of its value before anything else looks at the statement, so that it
narrows what is read as a constant does.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from streamydb.client import canonical
from streamydb.errors import ValueRejected
from streamydb_layers.tables.errors import (
    DataRefusedError,
    Place,
    StatementInvalidError,
    StatementUnsupportedError,
    place_of,
)
from streamydb_layers.tables.grammar import grammatical
from streamydb_layers.tables.trees import is_expression

DIALECT: Final = "duckdb"
logging.getLogger("sqlglot").addHandler(logging.NullHandler())
"""We tell ourselves what it does not understand; else it would write on standard error."""

_CLASS: Final = re.compile(r"<class '[\w.]*?(\w+)'>")
_TOKEN: Final = re.compile(r"<Token token_type: \S+ text: (.*?), line: .*?>")
_MAY_CLOSE: Final = re.compile(r"['\"$]|\*/")
_TAGGED: Final = re.compile(r"\$[^\W\d]\w*\$")
_SOURCE: Final = "streamydb_source"
"""Where a statement, and the query in one, keep their text."""
_TEXT: Final = "streamydb_text"
"""Where an expression keeps its text."""

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Values of `?` and `$1`; a mapping has those of `$name`."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a statement as DuckDB understands it, and the values of its parameters.

    Attributes:
        sql: the text.
        values: by the names that DuckDB's trees have for the parameters: numbers, or their own.
    """

    sql: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def literals(self) -> dict[str, str]:
        """The values as SQL."""
        return {name: literal(value).sql(DIALECT) for name, value in self.values.items()}


def spliced_by_words(source: Source) -> str:
    """The text of a statement with its values, where DuckDB has no tree that places them."""
    literals, made, number = source.literals, source.sql, 0
    tokens = _tokens(made)
    found = []
    for token, behind in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type is TokenType.PLACEHOLDER:
            number += 1
            found.append((token.start, token.end + 1, literals[str(number)]))
        elif token.token_type is TokenType.PARAMETER and behind is not None:
            found.append((token.start, behind.end + 1, literals[behind.text]))
    for start, end, text in reversed(found):
        made = made[:start] + text + made[end:]
    return made


def source_of(statement: exp.Expr) -> Source:
    """The text of a statement, or of the query of a CREATE."""
    found: Source = statement.meta[_SOURCE]
    return found


def expression_text(node: exp.Expr) -> str:
    """The text of an expression as the user wrote it.
    Raises StatementUnsupportedError: it is none of DuckDB's.
    """
    text = str(node.meta.get(_TEXT) or node.sql(DIALECT))
    if not is_expression(text):
        raise unsupported(node)
    return text


def _placed(parser: Any) -> exp.Expr:
    """A parameter without a name, with its place: they are numbered as they stand in the text."""
    token = parser._prev  # noqa: SLF001 - the parsers of sqlglot are extended by such functions
    node = exp.Placeholder()
    node.update_positions(token)
    return node


class Savepoint(exp.Expression):
    """SAVEPOINT name."""


class Release(exp.Expression):
    """RELEASE [SAVEPOINT] name."""


def is_control(statement: exp.Expr) -> bool:
    """Return True if a statement begins or ends a transaction."""
    if isinstance(statement, exp.Rollback):
        return statement.args.get("savepoint") is None
    return isinstance(statement, exp.Transaction | exp.Commit)


def is_saving(statement: exp.Expr) -> bool:
    """Return True if a statement is about a savepoint."""
    saving = isinstance(statement, Savepoint | Release)
    return saving or (isinstance(statement, exp.Rollback) and not is_control(statement))


class _PlacingParser(DuckDBParser):
    """Knows the places of parameters, the text of expressions, and a PIVOT as a query."""

    def _parse_assignment(self) -> Any:
        return self._with_text(super()._parse_assignment)

    def _parse_disjunction(self) -> Any:
        return self._with_text(super()._parse_disjunction)

    def _parse_bitwise(self) -> Any:
        return self._with_text(super()._parse_bitwise)

    def _with_text(self, parse_part: Callable[[], Any]) -> Any:
        first = self._curr
        node = parse_part()
        if first is not None and isinstance(node, exp.Expr) and self._prev is not None:
            node.meta[_TEXT] = self.sql[first.start : self._prev.end + 1]
        return node

    def _parse_statement(self) -> Any:
        if self._match_text_seq("SAVEPOINT"):
            return self.expression(Savepoint(this=self._parse_id_var()))
        if self._match_text_seq("RELEASE"):
            self._match_text_seq("SAVEPOINT")
            return self.expression(Release(this=self._parse_id_var()))
        return super()._parse_statement()

    def _parse_simplified_pivot(self, is_unpivot: Any = None) -> Any:
        """A pivot as the query that it is, with what may follow: ORDER BY, LIMIT and OFFSET."""
        pivot = super()._parse_simplified_pivot(is_unpivot)
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=pivot))
        return self._parse_query_modifiers(query)

    def _parse_ddl_select(self) -> Any:
        """The query of a CREATE or an INSERT."""
        if self._match_set((TokenType.PIVOT, TokenType.UNPIVOT)):
            return self._parse_simplified_pivot(self._prev.token_type is TokenType.UNPIVOT)
        return super()._parse_ddl_select()

    PLACEHOLDER_PARSERS = {  # noqa: RUF012 - as sqlglot declares it
        **DuckDBParser.PLACEHOLDER_PARSERS,
        TokenType.PLACEHOLDER: _placed,
    }


class _Placing(DuckDB):
    """DuckDB's dialect; parameters know their places.

    DuckDB's tokens of sqlglot take what is between two parameters, as in `$1,$2`, for the tag of a
    text in dollars.
    """

    Parser = _PlacingParser

    class Tokenizer(DuckDB.Tokenizer):
        HEREDOC_STRINGS = []  # noqa: RUF012 - as sqlglot declares it
        RAW_STRINGS = [("$$", "$$")]  # noqa: RUF012


def parse(sql: str) -> list[exp.Expr]:
    """The statements of a text. Raises StatementInvalidError: it is no SQL."""
    if not _is_unicode(sql):
        raise StatementInvalidError("This is no SQL: it is not Unicode text.")
    try:
        return [_parsed(tokens, sql) for tokens in _split(_tokens(sql))]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        place = Place(first["line"], first["col"]) if first.get("line") else None
        near = first.get("highlight")
        what = _plain(str(first.get("description") or error))
        raise StatementInvalidError(f"{what}, at {near!r}" if near else what, place) from None
    except TokenError as error:
        raise StatementInvalidError(f"This is no SQL: {error}") from None
    except RecursionError:
        raise too_deep() from None


def _tokens(sql: str) -> list[Any]:
    """The tokens of a text; a text in dollars that has a tag is known to DuckDB's only."""
    return (DuckDB if _TAGGED.search(sql) else _Placing)().tokenize(sql)


def _split(tokens: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the tokens of each statement."""
    for ends, found in groupby(tokens, lambda each: each.token_type is TokenType.SEMICOLON):
        if not ends:
            yield list(found)


def _parsed(tokens: list[Any], sql: str) -> exp.Expr:
    for statement in _statements(tokens, sql):
        if statement is not None:
            text = grammatical(statement, tokens, sql)
            statement.meta[_SOURCE] = Source(text)
            if isinstance(statement, exp.Create) and statement.expression is not None:
                statement.expression.meta[_SOURCE] = Source(_behind_as(text))
            return statement
    raise StatementInvalidError("This is no SQL.", Place(tokens[0].line, tokens[0].col))


def _statements(tokens: list[Any], sql: str) -> list[exp.Expr | None]:
    """Parse tokens by sqlglot, which stumbles over some that are no SQL."""
    try:
        return list(_Placing().parser().parse(tokens, sql))
    except (ParseError, TokenError, RecursionError):
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StatementInvalidError(
            f"This is no SQL that tables read: {error}", Place(tokens[0].line, tokens[0].col)
        ) from None


def _behind_as(sql: str) -> str:
    """The query of `create ... as query`."""
    depth = 0
    for token in _tokens(sql):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.token_type is TokenType.ALIAS and depth == 0:
            return sql[token.end + 1 :].strip()
    return sql


def _plain(told: str) -> str:
    """Leave the names of sqlglot's own classes out of what it tells."""
    told = _TOKEN.sub(lambda found: repr(found[1]), _CLASS.sub(r"\1", told))
    return told.replace("'SENTINEL'", "the end").rstrip(".")


class TypedLines:
    """The lines of statements that somebody types; each is looked at once, unless a text goes on.

    Attributes:
        lines: all of them.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._open: list[str] = []
        self._ended = False

    def take(self, line: str) -> bool:
        """Add a line; return True if a semicolon that ends a statement is the last of all.

        One in a text or a comment does not; comments may follow it.
        """
        self.lines.append(line)
        self._open.append(line)
        if len(self._open) > 1 and not _MAY_CLOSE.search(line):
            return False
        try:
            found = _tokens("\n".join(self._open))
        except TokenError:  # a text or a comment goes on
            return False
        self._open.clear()
        self._ended = found[-1].token_type is TokenType.SEMICOLON if found else self._ended
        return self._ended


def bind(statement: exp.Expr, params: Parameters | None) -> exp.Expr:
    """The statement with literals instead of its parameters.
    Raises StatementInvalidError: there are more or fewer values than parameters.
    """
    places = [node for node in statement.walk() if isinstance(node, exp.Placeholder)]
    places.sort(key=lambda node: node.meta.get("start", 0))
    values: Any = () if params is None else params
    if not hasattr(values, "__len__"):
        raise StatementInvalidError("The values of parameters are a list, or by name a mapping.")
    used: set[Any] = set()
    nameless = 0
    for node in places:
        name: Any = node.this
        if not name:
            nameless += 1
            name = str(nameless)
        index = int(name) - 1 if str(name).isdigit() else name
        used.add(index)
        try:
            value = values[index]
        except (LookupError, TypeError):
            raise StatementInvalidError(
                f"There is no value for parameter {name}.", place_of(node)
            ) from None
        try:
            node.replace(literal(value))
        except DataRefusedError as error:
            raise DataRefusedError(f"Parameter {name}: {error}", place_of(node)) from None
    if not isinstance(values, Mapping) and len(used) != len(values):
        raise StatementInvalidError(f"There are {len(values)} values for {len(used)} parameters.")
    return _with_values(statement, values)


def _with_values(statement: exp.Expr, values: Parameters) -> exp.Expr:
    """A statement that has the values of its parameters with its text, or in it."""
    pairs = values.items() if isinstance(values, Mapping) else enumerate(values, 1)
    named = {str(name): _by_value(value) for name, value in pairs}
    source = Source(source_of(statement).sql, named)
    if named and not isinstance(statement, exp.DML | exp.Query | exp.Values):
        [made] = parse(spliced_by_words(source))
        return made
    statement.meta[_SOURCE] = source
    return statement


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a part of a statement that says more than these of its arguments.
    Raises StatementUnsupportedError: it does.
    """
    for name, value in node.args.items():
        if name not in known and value:
            said_at = value.expressions if isinstance(value, exp.Properties) else value
            at = said_at[0] if isinstance(said_at, list) else said_at
            said = at.sql(DIALECT) if isinstance(at, exp.Expr) else ""
            what = said or name.replace("_", " ").upper()
            place = place_of(at if isinstance(at, exp.Expr) else node)
            raise StatementUnsupportedError(f"Tables do not understand {what!r} here.", place)


def too_deep() -> StatementInvalidError:
    """The error that a statement has more brackets in brackets than Python can follow."""
    return StatementInvalidError("It is nested too deep.")


def unsupported(node: exp.Expr, what: str = "") -> StatementUnsupportedError:
    """The error that a part of a statement is not understood."""
    text = node.sql(DIALECT)
    shown = text if len(text) < 60 else text[:57] + "..."
    return StatementUnsupportedError(what or f"Tables do not understand {shown!r}.", place_of(node))


def literal(value: Any) -> exp.Expr:
    """The literal of a Python value. Raises DataRefusedError: there is none."""
    value = _by_value(value)
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        if not _is_unicode(value):
            raise DataRefusedError("A text is not Unicode.")
        return exp.Literal.string(value)
    if isinstance(value, dict | list | tuple):
        return _cast(_json(value), "JSON")
    if isinstance(value, float) and not math.isfinite(value):
        raise DataRefusedError(f"{value} is no number that can be stored.")
    if isinstance(value, Decimal):
        return _cast(format(value, "f"), _decimal(value))
    for kind, name in _NAMES.items():
        if isinstance(value, kind):
            return _cast(_text(value), name)
    raise DataRefusedError(f"A parameter cannot be of type {type(value).__name__}.")


def _by_value(value: Any) -> Any:
    """A text or number of a class of its own, as an Enum's or of numpy, as one of Python's."""
    numeric = isinstance(value, np.number | np.bool_)
    if numeric and not isinstance(value, np.timedelta64):  # .item() of nanoseconds is a number
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


_NAMES: Final[dict[type, str]] = {
    int: "BIGINT",
    float: "DOUBLE",
    dt.datetime: "TIMESTAMP",
    dt.date: "DATE",
}


def _cast(text: str, name: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(name, dialect=DIALECT))


def _is_unicode(text: str) -> bool:
    """Return True if a text has no half of a pair of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(value: Any) -> str:
    try:
        return canonical(msgspec.to_builtins(value, str_keys=True)).decode()
    except (ValueRejected, TypeError) as fault:
        raise DataRefusedError(f"A parameter is no JSON that can be stored: {fault}") from None


def _text(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return str(value)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise DataRefusedError(f"{value} is no number that can be stored.")
    places = max(0, -int(value.as_tuple().exponent))
    digits = max(len(value.as_tuple().digits), places) + max(0, int(value.as_tuple().exponent))
    if digits > 38:
        raise DataRefusedError(f"{value} has more than 38 digits.")
    return f"DECIMAL({max(digits, 1)},{places})"
