"""`streamydb sql`: statements from arguments, standard input and the prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.cli import app
from streamydb.cli.sql import Prompt
from streamydb.local.signals import Terminated
from streamydb_layers.tables import Tables, dbapi

MAKE = "create table t (id int primary key, name text unique default 'x', check (id > 0));"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[dbapi.Connection]:
    made = dbapi.connect(Tables.in_memory(), autocommit=True)

    def connect(url: str, name: str, **options: Any) -> dbapi.Connection:
        assert (url, name) == ("http://here", "shop")
        assert options == {"token": None, "autocommit": True}
        return made

    monkeypatch.setattr(dbapi, "connect", connect)
    monkeypatch.setattr("streamydb.kafka.connection.listens", lambda _: True)
    yield made
    made.close()


def run(*words: str, given: str | None = None) -> Any:
    arguments = ["sql", "--url", "http://here", "--tables", "shop", *words]
    return CliRunner().invoke(app, arguments, input=given)


@pytest.mark.usefixtures("connection")
def test_statements_come_from_arguments() -> None:
    done = run(f"{MAKE} insert into t values (1, 'é'); select *, [1] as l from t", "--json")
    assert done.exit_code == 0
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"columns": [], "rows": [], "changed": None},
        {"columns": [], "rows": [], "changed": 1},
        {"columns": ["id", "name", "l"], "rows": [[1, "é", [1]]], "changed": None},
    ]


@pytest.mark.usefixtures("connection")
def test_statements_come_from_standard_input_and_end_at_an_error() -> None:
    done = run(
        given=f"{MAKE}\nbegin; insert into t (id) values (1); rollback;\n"
        "select count(*) from t;select * from nope; drop table t"
    )
    assert done.exit_code == 1
    assert "done" in done.stdout
    assert "0" in done.stdout
    assert "line 3, column 38: There is no table nope" in done.stderr


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize(
    ("text", "code"),
    [("begin; insert into t values (1)", 1), ("begin; insert into t values (1); commit", 0)],
)
def test_a_transaction_without_its_commit_is_no_success(text: str, code: int) -> None:
    done = run(f"create table t (id int); {text}")
    assert done.exit_code == code
    assert "1 row\n" in done.stdout
    assert ("nothing of it was written" in done.stderr) == bool(code)


def test_without_a_facade_it_says_what_to_do(tmp_path: Any) -> None:
    done = CliRunner().invoke(app, ["sql", "select 1", "--home", str(tmp_path)])
    assert done.exit_code == 1
    assert "--url" in done.stderr


def test_sigterm_ends_the_prompt_where_ctrl_c_ends_a_statement(
    connection: dbapi.Connection,
) -> None:
    said: list[BaseException] = [KeyboardInterrupt(), Terminated(), EOFError()]

    def ask(_: str) -> str:
        raise said.pop(0)

    with pytest.raises(Terminated):
        list(Prompt(connection, ask).lines())
    assert len(said) == 1


def test_the_prompt_reads_whole_statements_and_obeys(
    connection: dbapi.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.cursor().execute(MAKE)
    connection.cursor().execute("create view short as select name as called from t")
    told = ["\\d", "\\d T", "\\d short", "\\d nope", "\\?"]
    given = [*told, "select", "", "1; -- one", "lost", KeyboardInterrupt(), "a; b;", "x ';", "';"]
    typed: Iterator[Any] = iter([*given, EOFError()])
    prompts = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return str(line)

    prompt = Prompt(connection, ask)
    assert list(prompt.lines()) == ["select\n\n1; -- one", "a; b;", "x ';\n';"]
    more = ["sql> ", "...> "]
    assert prompts == ["sql> "] * 6 + ["...> "] * 2 + [*more, "sql> ", *more, "sql> "]
    shown = capsys.readouterr().out
    assert "t (id, name)" in shown
    assert "name varchar default 'x'" in shown
    assert "unique index t_name_key (name)" in shown
    assert "short (called)" in shown
    assert "called varchar\nview: select name as called from t\n" in shown
    assert "There is no table or view nope." in shown
    assert "semicolon" in shown
    assert prompt.complete("na") == ["name"]
    assert prompt.complete("sho") == ["short"]
    assert prompt.complete("call") == ["called"]
    assert prompt.complete("SEL") == ["select"]
    assert list(Prompt(connection, lambda _: "\\q").lines()) == []


def test_the_history_is_kept_when_a_statement_is_interrupted(
    connection: dbapi.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    monkeypatch.setattr(Prompt, "_end", lambda _: ended.append(True))

    def type_statements() -> None:
        for _ in Prompt(connection, lambda _: "select 1;").lines():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        type_statements()
    assert ended == [True]


@pytest.mark.usefixtures("connection")
def test_standard_input_that_is_no_text() -> None:
    done = CliRunner(charset="utf-8").invoke(
        app, ["sql", "--url", "http://here", "--tables", "shop"], input=b"select '\xe9'"
    )
    assert done.exit_code == 2
    assert "standard input is no utf-8" in done.stderr


@pytest.mark.usefixtures("connection")
def test_a_statement_that_is_no_text() -> None:
    done = run("select '\udce9'")
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code, "is no UTF-8" in done.stderr) == (2, True)
