"""Migrations of SQL tables by Alembic: what its operations and its comparison need to know.

`alchemy` imports this module where Alembic is installed. DDL is part of a transaction, so a
migration happens as a whole or not at all.
"""

from __future__ import annotations

from typing import Any, Final

from alembic.ddl.impl import DefaultImpl
from sqlalchemy import types

_KINDS: Final[tuple[tuple[type[Any], ...], ...]] = (
    (types.String,), (types.Float,), (types.DateTime,), (types.JSON,), (types.Boolean,),
    (types.SmallInteger,), (types.BigInteger,),
)  # fmt: skip
"""Types of which tables have one: a length or a precision of theirs is not kept."""


class TablesImpl(DefaultImpl):
    """The dialect for Alembic."""

    __dialect__ = "streamydb"
    transactional_ddl = True

    def compare_type(self, inspector_column: Any, metadata_column: Any) -> bool:
        """Return True if the type of a column is another one than that of the model."""
        dialect = self.dialect
        mine, theirs = (
            column.type.dialect_impl(dialect) for column in (inspector_column, metadata_column)
        )
        if any(isinstance(mine, kind) and isinstance(theirs, kind) for kind in _KINDS):
            return False
        return bool(super().compare_type(inspector_column, metadata_column))

    def compare_server_default(
        self, inspector_column: Any, metadata_column: Any,  # noqa: ARG002 - as Alembic calls it
        rendered_metadata_default: str | None, rendered_inspector_default: str | None,
    ) -> bool:  # fmt: skip
        """Return True if a default is another one than that of the model."""
        return _plain(rendered_metadata_default) != _plain(rendered_inspector_default)


def _plain(default: str | None) -> str | None:
    """The text of a default without what surrounds it: a model has texts without quotes."""
    if default is None:
        return None
    text = default.strip()
    for first, last in ("()", "''"):
        if text.startswith(first) and text.endswith(last):
            text = text[1:-1]
    return text.lower()
