"""The house rules that a machine can check: sizes, docstrings, types, imports, names, paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE_FOLDERS = ("streamydb", "jobs", "tests", "bench", "docs", "docker", "examples")
LINE_LENGTH_MAX = 100
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

CORE_FORBIDDEN = {
    "confluent_kafka",
    "datetime",
    "kafka",
    "lmdb",
    "os",
    "pathlib",
    "pyspark",
    "random",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
"""What a `core.py` must not import: engines, clocks, chance, files, processes."""

MACHINE_PATH = re.compile(r"(?<![\w.$~}])/(?:work|home|root|Users|tmp)/\w")
"""A path that exists on one machine only."""

TEXT_SUFFIXES = {
    ".cfg", ".conf", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".xml", ".yaml", ".yml",
}  # fmt: skip
TEXT_NAMES = {"Dockerfile", "Makefile", "run"}
SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


def files() -> list[Path]:
    """Return the text files of the project, tools' folders left out."""
    top = [path for path in ROOT.iterdir() if path.is_file()]
    deep = [path for name in (*CODE_FOLDERS, ".ci") for path in (ROOT / name).rglob("*")]
    return sorted(
        path
        for path in top + deep
        if path.is_file()
        and not SKIPPED.intersection(path.relative_to(ROOT).parts)
        and (path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
    )


def sources(*folders: str) -> list[Path]:
    """Return the Python files of some folders."""
    return [
        path
        for path in files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


@cache
def tree(path: Path) -> ast.Module:
    """Parse a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    """Name a file in a test's id."""
    return str(path.relative_to(ROOT))


PYTHON = pytest.mark.parametrize("path", sources(*CODE_FOLDERS), ids=name)
PACKAGE = pytest.mark.parametrize("path", sources("streamydb", "jobs"), ids=name)
CORES = pytest.mark.parametrize(
    "path", [path for path in sources("streamydb") if path.name == "core.py"], ids=name
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def functions(path: Path) -> Iterator[Function]:
    """Walk over all functions of a file, nested ones too."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Walk over the public functions and classes of a module, and the methods of those classes."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def is_overload_or_override(node: Definition) -> bool:
    """Tell whether the docstring stands elsewhere: `@overload`, `@override`, a setter."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"overload", "override", "setter"})


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Walk over what a file imports, wherever it does: (dotted name, line)."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def declared_all(path: Path) -> list[str] | None:
    """Return the names in `__all__`, None if the module has none."""
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return list(ast.literal_eval(node.value))
    return None


def bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """Walk over the names that a module binds at its top level, within `if` and `try` too."""
    for node in body:
        if isinstance(node, Definition):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from bound_names(node.body + node.orelse)
        else:
            stores = (sub for sub in ast.walk(node) if isinstance(sub, ast.Name))
            yield from (sub.id for sub in stores if isinstance(sub.ctx, ast.Store))


@pytest.mark.parametrize("path", [p for p in files() if p.suffix == ".py"], ids=name)
def test_lines_and_files_are_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > LINE_LENGTH_MAX]
    assert not long, f"{name(path)}: lines over {LINE_LENGTH_MAX} characters: {long}"
    assert len(lines) <= FILE_LINES_MAX, f"{name(path)}: {len(lines)} lines, split it"


@PYTHON
def test_functions_are_short(path: Path) -> None:
    lengths = {
        f"{node.name} (line {node.lineno})": (node.end_lineno or node.lineno) - node.lineno + 1
        for node in functions(path)
    }
    long = {what: length for what, length in lengths.items() if length > FUNCTION_LINES_MAX}
    assert not long, f"{name(path)}: functions over {FUNCTION_LINES_MAX} lines: {long}"


@PYTHON
def test_modules_say_what_they_are_for(path: Path) -> None:
    assert ast.get_docstring(tree(path)), f"{name(path)} has no docstring"
    if any(not isinstance(node, ast.Expr) for node in tree(path).body):
        futures = [line for what, line in imports(path) if what == "__future__.annotations"]
        assert futures, f"{name(path)} lacks `from __future__ import annotations`"


@PACKAGE
def test_public_names_have_docstrings(path: Path) -> None:
    missing = [
        f"{what} (line {node.lineno})"
        for what, node in public(tree(path).body)
        if not ast.get_docstring(node) and not is_overload_or_override(node)
    ]
    assert not missing, f"{name(path)}: no docstring: {', '.join(missing)}"


@PYTHON
def test_functions_are_fully_typed(path: Path) -> None:
    untyped = [
        f"{node.name} (line {node.lineno})"
        for node in functions(path)
        if node.returns is None
        or any(
            argument.annotation is None and argument.arg not in {"self", "cls"}
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        )
    ]
    assert not untyped, f"{name(path)}: not typed: {', '.join(untyped)}"


@CORES
def test_cores_import_no_adapter_clock_chance_or_file(path: Path) -> None:
    wrong = [
        f"{what} (line {line})"
        for what, line in imports(path)
        if what.partition(".")[0] in CORE_FORBIDDEN
        or re.match(r"streamydb\.\w+\.(spark|kafka|store)\b", what)
    ]
    assert not wrong, f"{name(path)} must be pure, but imports {', '.join(wrong)}"


@PACKAGE
def test_nothing_reads_the_environment_at_import(path: Path) -> None:
    def reads(node: ast.AST) -> Iterator[int]:
        if isinstance(node, Function | ast.Lambda):
            return
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}:
            yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from reads(child)

    lines = list(reads(tree(path)))
    assert not lines, f"{name(path)} reads the environment at import: lines {lines}"


@pytest.mark.parametrize(
    "path", [path for path in sources("streamydb") if declared_all(path) is not None], ids=name
)
def test_all_is_true_and_sorted(path: Path) -> None:
    declared = declared_all(path) or []
    bound = set(bound_names(tree(path).body))
    assert len(set(declared)) == len(declared), f"{name(path)}: __all__ names something twice"
    assert set(declared) <= bound, f"{name(path)}: __all__ without {set(declared) - bound}"
    defined = {what for what, _ in public(tree(path).body) if "." not in what}
    hidden = defined - set(declared)
    assert not hidden, f"{name(path)}: public but not in __all__: {hidden}"


@pytest.mark.parametrize(
    "path", [path for path in sources("streamydb") if path.name == "__init__.py"], ids=name
)
def test_packages_declare_their_public_names(path: Path) -> None:
    if any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree(path).body[2:]):
        assert declared_all(path) is not None, f"{name(path)} re-exports but has no __all__"


@pytest.mark.parametrize("path", files(), ids=name)
def test_nothing_belongs_to_one_machine(path: Path) -> None:
    if path == Path(__file__).resolve():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if MACHINE_PATH.search(line)]
    assert not found, f"{name(path)}: paths of one machine in lines {found}"


@pytest.mark.parametrize("path", sources("tests"), ids=name)
def test_tests_do_not_sleep(path: Path) -> None:
    sleeps = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}
    ]
    assert not sleeps, f"{name(path)} sleeps in lines {sleeps}: wait for a condition"
