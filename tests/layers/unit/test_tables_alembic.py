"""Alembic migrates SQL tables: a model becomes tables, and nothing is left to do then."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    JSON,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    inspect,
    text,
)
from sqlalchemy.dialects import registry
from sqlalchemy.engine import Engine
from sqlalchemy.types import BigInteger, Boolean, Double, SmallInteger, Unicode

from streamydb_layers.tables.alchemy import TablesDialect

ENVIRONMENT = """
from alembic import context
options = context.config.attributes
with options["engine"].connect() as connection:
    context.configure(
        connection=connection, target_metadata=options["metadata"], compare_server_default=True
    )
    with context.begin_transaction():
        context.run_migrations()
"""
TEMPLATE = '''
"""${message}"""
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    ${downgrades if downgrades else "pass"}
'''
COMPARED = {"compare_type": True, "compare_server_default": True}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    for name in ("streamydb", "streamydb.rest"):
        registry.register(name, TablesDialect.__module__, TablesDialect.__name__)
    made = create_engine(f"streamydb:///{request.node.name[:40]}")
    yield made
    made.dispose()


def added() -> list[Any]:
    """The columns of a later version."""
    return [Column("since", Date), Column("score", Integer, server_default=text("7"))]


def model(*, more: bool = False) -> MetaData:
    """A model with all that a table may have; ``more``: of a later version."""
    metadata = MetaData()
    Table(
        "customers", metadata, Column("id", Integer, Identity(), primary_key=True),
        Column("name", String(50), nullable=False, unique=True),
        Column("map", Unicode(9), server_default="none"), Column("all", Text),
        *(added() if more else []),
    )  # fmt: skip
    Table(
        "orders", metadata, Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("customer", ForeignKey("customers.id", ondelete="CASCADE")),
        Column("total", Numeric(10, 2), nullable=False), Column("weight", Float),
        Column("size", Double), Column("small", SmallInteger), Column("paid", Boolean),
        Column("at", DateTime(timezone=False)), Column("doc", JSON),
        CheckConstraint("total >= 0", name="total_check"), UniqueConstraint("at", "size"),
        Index("by_weight", "weight", "at"), *([Index("by_paid", "paid")] if more else []),
    )  # fmt: skip
    return metadata


def differences(engine: Engine, metadata: MetaData) -> list[Any]:
    with engine.connect() as connection:
        found: list[Any] = compare_metadata(
            MigrationContext.configure(connection, opts=COMPARED), metadata
        )
        return found


def test_nothing_is_left_to_do_after_an_upgrade(engine: Engine, tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(ENVIRONMENT, encoding="utf-8")
    (scripts / "script.py.mako").write_text(TEMPLATE, encoding="utf-8")
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("path_separator", "os")
    config.attributes["engine"] = engine
    for more in (False, True):
        config.attributes["metadata"] = model(more=more)
        command.revision(config, message=f"more {more}", autogenerate=True)
        command.upgrade(config, "head")
        command.check(config)
        assert differences(engine, model(more=more)) == []
    command.downgrade(config, "-1")
    assert differences(engine, model()) == []
    command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_a_model_that_differs_is_seen(engine: Engine) -> None:
    model().create_all(engine)
    assert differences(engine, model()) == []
    kinds = {each[0] for each in differences(engine, model(more=True))}
    assert kinds == {"add_column", "add_index"}
    for column, kind in (("weight", "modify_type"), ("total", "modify_type"),
                         ("paid", "modify_nullable")):  # fmt: skip
        other = model()
        changed = other.tables["orders"].c[column]
        if kind == "modify_type":
            changed.type = Integer()
        else:
            changed.nullable = False
        [[found]] = differences(engine, other)
        assert (found[0], found[3]) == (kind, column)
    other = model()
    other.tables["customers"].c["map"].server_default = None
    [[found]] = differences(engine, other)
    assert found[0] == "modify_default"


def test_operations_change_tables(engine: Engine) -> None:
    model().create_all(engine)
    with engine.begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        operations.add_column("orders", Column("note", String, server_default="x"))
        operations.alter_column("orders", "note", nullable=False)
        operations.alter_column("orders", "note", server_default="y")
        operations.alter_column("orders", "weight", new_column_name="heft")
        operations.drop_index("by_weight", "orders")
        operations.rename_table("customers", "values")
        connection.execute(text("insert into \"values\" (name) values ('ann')"))
        connection.execute(text("insert into orders (id, customer, total) values (1, 1, 2)"))
        [row] = connection.execute(text("select note, heft, total from orders")).all()
        assert row == ("y", None, Decimal("2.00"))
        operations.drop_column("orders", "note")
        left = [column["name"] for column in inspect(connection).get_columns("orders")]
        assert "note" not in left
