"""SQL tables as a dialect of SQLAlchemy: a mapped class, reflection, and SQLAlchemy's own suite."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
pytest.importorskip("sqlalchemy")

from sqlalchemy import ForeignKey, MetaData, Table, create_engine, func, inspect, select, update
from sqlalchemy.dialects import registry
from sqlalchemy.exc import IntegrityError, NoSuchTableError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.schema import CreateView
from sqlalchemy.types import JSON, Numeric

from streamydb_layers.tables.alchemy import TablesDialect
from tests.support.sources import PYTHONPATH

REGISTER = """
from sqlalchemy.dialects import registry
for name in ("streamydb", "streamydb.rest"):
    registry.register(name, "streamydb_layers.tables.alchemy", "TablesDialect")
"""
CONFTEST = f"""
import pytest
{REGISTER}
pytest.register_assert_rewrite("sqlalchemy.testing.assertions")
from sqlalchemy.testing.plugin.pytestplugin import *
"""
LEFT_OUT = (
    # They want quotes in names, bytes, decimals of 38 digits, lengths of texts, a level of
    # isolation that is not the strictest one, or a schema.
    "not BizarroCharacter and not QuotedName and not LargeBinary and not numeric_38_digit "
    "and not test_truediv_numeric and not test_string_length_reflection "
    "and not test_dialect_user_setting_is_restored and not (test_check_constraint and True)"
)


class Base(DeclarativeBase):
    """The mapped classes."""


class Customer(Base):
    """Numbers itself."""

    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    data: Mapped[dict[str, int] | None] = mapped_column(JSON)


class Order(Base):
    """Refers to a customer."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer: Mapped[int] = mapped_column(ForeignKey("customers.id", ondelete="CASCADE"))
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2), index=True)


@pytest.fixture(autouse=True)
def _registered() -> None:
    """As the entry point does in an installed wheel."""
    for name in ("streamydb", "streamydb.rest"):
        registry.register(name, TablesDialect.__module__, TablesDialect.__name__)


def test_mapped_classes_are_stored_found_and_reflected() -> None:
    engine = create_engine("streamydb:///mapped")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        ann = Customer(name="Ann", data={"visits": 2})
        session.add_all([ann, Customer(name="Bob")])
        session.flush()
        session.add(Order(id=7, customer=ann.id, total=Decimal("9.50")))
        session.commit()
        found = session.execute(
            select(Customer.name, func.sum(Order.total)).join(Order).group_by(Customer.name)
        )
        assert [tuple(row) for row in found] == [("Ann", Decimal("9.50"))]
        assert session.get_one(Customer, ann.id).data == {"visits": 2}
        session.add(Customer(name="Bob"))
        with pytest.raises(IntegrityError):
            session.commit()
    shown = inspect(engine)
    assert shown.get_table_names() == ["customers", "orders"]
    assert [column["name"] for column in shown.get_columns("orders")] == ["id", "customer", "total"]
    [key] = shown.get_foreign_keys("orders")
    assert (key["referred_table"], key["options"]) == ("customers", {"ondelete": "CASCADE"})
    assert [i["column_names"] for i in shown.get_indexes("orders")] == [["total"]]
    with pytest.raises(NoSuchTableError):
        shown.get_columns("nope")
    Base.metadata.drop_all(engine)
    assert inspect(engine).get_table_names() == []


def test_a_conflict_is_an_operational_error() -> None:
    engine = create_engine("streamydb:///conflict")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Customer(name="Ann"))
        session.commit()
    add = update(Customer).values(name=Customer.name + "x")
    with Session(engine) as one, Session(engine) as other:
        one.execute(add)
        other.execute(add)
        one.commit()
        with pytest.raises(OperationalError):
            other.commit()


def test_a_savepoint_takes_back_what_came_after_it() -> None:
    engine = create_engine("streamydb:///saved")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Customer(name="Ann"))
        inner = session.begin_nested()
        session.add_all([Customer(name="Bob"), Customer(name="Ann")])
        with pytest.raises(IntegrityError):
            session.flush()
        inner.rollback()
        with session.begin_nested():
            session.add(Customer(name="Cid"))
        session.commit()
    with Session(engine) as session:
        found = session.scalars(select(Customer.name).order_by(Customer.name))
        assert [*found] == ["Ann", "Cid"]


def test_views_are_made_and_reflected() -> None:
    engine = create_engine("streamydb:///views")
    Base.metadata.create_all(engine)
    cells = func.sum(Order.total).label("total"), func.count().label("n")
    with engine.begin() as connection:
        connection.execute(
            CreateView(select(Order.customer, *cells).group_by(Order.customer), "spent")
        )
        connection.exec_driver_sql("create view odd as select [1] as l, null::hugeint as h")
    shown = inspect(engine)
    assert shown.get_view_names() == ["odd", "spent"]
    assert "spent" not in shown.get_table_names()
    assert "GROUP BY orders.customer" in shown.get_view_definition("spent")
    assert shown.has_table("spent")
    columns = shown.get_columns("spent")
    assert [(each["name"], each["nullable"]) for each in columns] == [
        ("customer", True), ("total", True), ("n", True),
    ]  # fmt: skip
    assert [repr(each["type"]) for each in columns] == [
        "INTEGER()", "DECIMAL(precision=38, scale=2)", "BIGINT()",
    ]  # fmt: skip
    assert [repr(c["type"]) for c in shown.get_columns("odd")] == ["NullType()", "NUMERIC()"]
    assert shown.get_pk_constraint("spent")["constrained_columns"] == []
    assert (shown.get_foreign_keys("spent"), shown.get_indexes("spent")) == ([], [])
    with pytest.raises(NoSuchTableError):
        shown.get_view_definition("orders")
    spent = Table("spent", MetaData(), autoload_with=engine)
    with Session(engine) as session:
        ann = Customer(name="Ann")
        session.add(ann)
        session.flush()
        session.add_all([Order(id=n, customer=ann.id, total=Decimal(n)) for n in (1, 2)])
        session.commit()
        assert session.execute(select(spent.c.total, spent.c.n)).one() == (Decimal(3), 2)
        by_name = select(Customer.id).where(Customer.name.regexp_match("^a", "i"))
        assert session.scalars(by_name).one() == ann.id
        assert session.scalar(select(Customer.name.regexp_replace("n+", "x"))) == "Ax"


def test_the_url_names_the_facade_the_tables_and_the_token() -> None:
    dialect = TablesDialect()
    url = create_engine("streamydb://user:secret@here:8443/shop?tls=1").url
    assert dialect.create_connect_args(url) == (["https://here:8443", "shop"], {"token": "secret"})
    url = create_engine("streamydb://[::1]:8080/shop").url
    assert dialect.create_connect_args(url) == (["http://[::1]:8080", "shop"], {})


@pytest.mark.long
def test_sqlalchemys_own_suite_passes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_suite.py").write_text("from sqlalchemy.testing.suite import *\n")
    (tmp_path / "setup.cfg").write_text(
        "[sqla_testing]\nrequirement_cls=tests.support.alchemy:Requirements\n"
        "profile_file=profiles.txt\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--dburi", "streamydb:///suite", "-k", LEFT_OUT],
        cwd=tmp_path, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
