"""Generated clients compile, and see what a facade shows: the same in every language.

Each program of `programs/` puts, gets, commits, is refused, reads, scans and follows the changes,
with types that a generator made of the OpenAPI document, and prints what it saw.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.clients.toolchain import PROGRAMS, class_path, generate, needs, node_module, run
from tests.support.served import Served, serving

pytestmark = pytest.mark.timeout(1_200)

SEEN: Final[dict[str, Any]] = {
    "got": 100,
    "reads": {"acct/a b": 70},
    "refused": ["aborted", "check-failed", "order/1"],
    "absent": True,
    "keys": ["acct/2", "acct/a b"],
    "problem": [404, "/problems/key-not-found"],
    "changes": [["acct/a b", 100], ["acct/2", {"owner": "ann"}], ["acct/a b", 70]],
}
STRICT: Final = [
    "--strict", "--target", "es2022", "--module", "commonjs", "--lib", "es2022,dom,dom.iterable",
    "--types", "node", "--esModuleInterop",
]  # fmt: skip


@pytest.fixture
def served() -> Iterator[Served]:
    """Serve an empty database."""
    with serving() as facade:
        yield facade


@pytest.fixture
def document(served: Served, tmp_path: Path) -> Path:
    """The facade's own OpenAPI document, in a file."""
    path = tmp_path / "openapi.json"
    path.write_bytes(httpx.get(f"{served.url}/schema/openapi.json").raise_for_status().content)
    return path


def typescript(sources: Path, program: str) -> Path:
    """Compile a program with strict checks; return what Node runs."""
    compiler = node_module("tsc")
    types = compiler.parents[1] / "@types"
    run([compiler, *STRICT, "--typeRoots", types, "--outDir", "out", program], sources)
    return sources / "out" / Path(program).with_suffix(".js")


def test_python(served: Served, document: Path, tmp_path: Path) -> None:
    for module in ("pydantic", "urllib3", "dateutil"):
        pytest.importorskip(module, reason=f"the generated client needs it: pip install {module}")
    generate("python", document, tmp_path, {"--additional-properties": "packageName=generated"})
    program = [sys.executable, "-W", "ignore", str(PROGRAMS / "program.py"), served.url]
    assert json.loads(run(program, tmp_path, PYTHONPATH=str(tmp_path))) == SEEN


def test_go(served: Served, document: Path, tmp_path: Path) -> None:
    needs("go")
    module = {
        "--git-host": "example.org", "--git-user-id": "streamydb", "--git-repo-id": "generated",
        "--additional-properties": "packageName=generated",
    }  # fmt: skip
    generate("go", document, tmp_path / "go", module)
    folder = tmp_path / "go" / "cmd"
    folder.mkdir()
    (folder / "main.go").write_text((PROGRAMS / "main.go").read_text())
    run(["go", "vet", "."], tmp_path / "go")
    run(["go", "build", "-o", "tour", "./cmd"], tmp_path / "go")
    assert json.loads(run([tmp_path / "go" / "tour", served.url], tmp_path)) == SEEN


def test_java(served: Served, document: Path, tmp_path: Path) -> None:
    needs("javac")
    packages = (
        "apiPackage=generated,modelPackage=generated.model,invokerPackage=generated.client,"
        "openApiNullable=false"
    )
    options = {"--library": "native", "--additional-properties": packages}
    generate("java", document, tmp_path / "java", options)
    sources = [*(tmp_path / "java" / "src" / "main").rglob("*.java"), PROGRAMS / "Program.java"]
    run(["javac", "-nowarn", "-cp", class_path(), "-d", "classes", *sources], tmp_path)
    command = ["java", "-cp", f"classes:{class_path()}", "Program", served.url]
    assert json.loads(run(command, tmp_path)) == SEEN


def test_typescript(served: Served, document: Path, tmp_path: Path) -> None:
    node_module("tsc")
    generate("typescript-fetch", document, tmp_path / "generated", {})
    (tmp_path / "fetch.ts").write_text((PROGRAMS / "fetch.ts").read_text())
    program = typescript(tmp_path, "fetch.ts")
    assert json.loads(run(["node", program, served.url], tmp_path)) == SEEN


def test_openapi_typescript(served: Served, document: Path, tmp_path: Path) -> None:
    run([node_module("openapi-typescript"), document, "-o", "schema.ts"], tmp_path)
    (tmp_path / "typed.ts").write_text((PROGRAMS / "typed.ts").read_text())
    program = typescript(tmp_path, "typed.ts")
    assert json.loads(run(["node", program, served.url], tmp_path)) == SEEN
