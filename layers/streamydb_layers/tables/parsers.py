"""DuckDB's parser, for any number of threads: it reads SQL, and has no data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamydb.client.forks import Kept
from streamydb.sql import connect

if TYPE_CHECKING:
    import duckdb


def _parser() -> duckdb.DuckDBPyConnection:
    return connect({"threads": "1"})


PARSERS: Final = Kept(_parser, lambda parser: parser.close())
