"""Hold statements against DuckDB's own grammar.

sqlglot, which understands the statements, takes much that is no SQL, and passes over a part of it:
of `set a = 1 set b = 2` it keeps the last SET, and `a join b` without ON is every pair of rows. So
DuckDB parses their text, too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from streamydb_layers.tables.errors import Place, StatementInvalidError
from streamydb_layers.tables.parsers import PARSERS

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT_CHARACTERS: Final = 2_000
_SHOWN: Final = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^")


def grammatical(statement: exp.Expr, tokens: Sequence[Any], sql: str) -> str:
    """Refuse a statement with rows, or an index, if DuckDB's parser refuses its text.

    A name may be a word that DuckDB reserves.

    Returns: the text that DuckDB understands; where a name is such a word, names have quotes.

    Args:
        statement: what sqlglot has made of it.
        tokens: its tokens, which have their places.
        sql: the text that they are of.

    Raises:
        StatementInvalidError: it does.
    """
    if isinstance(statement, exp.Create):
        plain_query = statement.expression is not None and not statement.args.get("properties")
        is_ours = statement.kind != "INDEX" and not plain_query
    else:
        is_ours = not isinstance(statement, exp.DML | exp.Query)
    start, end = tokens[0].start, tokens[-1].end + 1
    text = sql[start:end]
    if is_ours or _told(text) is None:
        return text
    names = _names(statement, sql, start, end)
    for at, behind in reversed(names):
        text = f'{text[:at]}"{text[at:behind]}"{text[behind:]}'
    told = _told(text)
    if told is None:
        return text
    message, place = told
    quotes = 2 * sum(at + 2 * number < place for number, (at, _) in enumerate(names))
    before = sql[: start + place - quotes]
    line = before.rpartition("\n")[2]
    message = message.replace('""', '"')
    raise StatementInvalidError(message, Place(before.count("\n") + 1, len(line) + 1))


def _names(statement: exp.Expr, sql: str, start: int, end: int) -> list[tuple[int, int]]:
    """The places of names without quotes, in their order, from the start of the statement on."""
    found = set()
    for node in statement.find_all(exp.Identifier):
        at, behind = node.meta.get("start", -1), node.meta.get("end", -1) + 1
        if not node.quoted and start <= at < behind <= end and sql[at:behind].isidentifier():
            found.add((at - start, behind - start))
    return sorted(found)


def _told(text: str) -> tuple[str, int] | None:
    """The message, and how far in a text it is, if that is no SQL."""
    return (_kept if len(text) <= _KEPT_CHARACTERS else _parsed)(text)


def _parsed(text: str) -> tuple[str, int] | None:
    import duckdb

    parser = PARSERS.take()
    try:
        parser.extract_statements(text)
    except duckdb.ParserException as error:
        told = str(error)
    except duckdb.Error:  # SQL that DuckDB does not understand
        return None
    else:
        return None
    finally:
        PARSERS.give(parser)
    return told.partition("\n")[0].removeprefix("Parser Error: "), _place(told, text)


_kept: Final = lru_cache(maxsize=512)(_parsed)


def _place(told: str, text: str) -> int:
    """The place that a message shows, in a text; DuckDB shows a part of a long line."""
    found = _SHOWN.search(told)
    if found is None:
        return 0
    lines = text.split("\n")
    line, shown = int(found[1]), found[2]
    column = len(found[3]) - len(f"LINE {line}: ")
    if shown.startswith("..."):
        column += max(0, lines[line - 1].find(shown.strip("."))) - len("...")
    return sum(len(each) + 1 for each in lines[: line - 1]) + column
