"""The house rules that a machine can check: sizes, docstrings, types, imports, names, paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE_FOLDERS = (
    "streamydb", "layers", "simulator", "histories", "jobs", "tests", "bench", "docs", "docker",
    "examples",
)  # fmt: skip
LINE_LENGTH_MAX = 100
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

RIDDLES = {"Whether", "What", "How", "Who", "Which", "Where", "When"}
"""First words behind which a docstring hides its subject."""

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

KAFKA_CLIENTS = "streamydb/kafka/clients.py"
"""The one file of the package that makes clients of Kafka; benchmarks measure with their own."""

KAFKA_RAW = re.compile(
    r"kafka(\..*)?|confluent_kafka\.(.*(Consumer|Producer|AdminClient)|(cimpl|aio)\b.*)"
)
"""What clients of Kafka are made with."""

MACHINE_PATH = re.compile(r"(?<![\w.$~}])/(?:work|home|root|Users|tmp)/\w")
"""A path that exists on one machine only."""

TEXT_SUFFIXES = {
    ".cfg", ".conf", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".xml", ".yaml", ".yml",
}  # fmt: skip
TEXT_NAMES = {"Dockerfile", "Makefile", "run"}
SKIPPED = re.compile(r"__pycache__|node_modules|build|dist|.*\.egg-info")


@cache
def files() -> list[Path]:
    """Return the text files of the project, tools' folders left out."""
    top = [path for path in ROOT.iterdir() if path.is_file()]
    deep = [path for name in (*CODE_FOLDERS, ".ci") for path in (ROOT / name).rglob("*")]
    return sorted(
        path
        for path in top + deep
        if path.is_file()
        and not any(map(SKIPPED.fullmatch, path.relative_to(ROOT).parts))
        and (path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
    )


def folder(path: Path) -> str:
    """Name the top folder that a file lies in; the empty text if it lies beside them."""
    return path.relative_to(ROOT).parts[0] if path.parent != ROOT else ""


@lru_cache(maxsize=2)
def tree(path: Path) -> ast.Module:
    """Parse a Python file; few are kept: the collector would walk through all of them."""
    return ast.parse(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=2)
def nodes(path: Path) -> list[ast.AST]:
    """List what a Python file consists of; most rules walk over all of it.

    As `ast.walk` does, in a third of its time.
    """
    found: list[ast.AST] = [tree(path)]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
    return found


def name(path: Path) -> str:
    """Name a file in a test's id."""
    return str(path.relative_to(ROOT))


Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def functions(path: Path) -> Iterator[Function]:
    """Walk over all functions of a file, nested ones too."""
    return (node for node in nodes(path) if isinstance(node, Function))


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Walk over the public functions and classes of a module, and the methods of those classes."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Walk over what a file imports, wherever it does: (dotted name, line)."""
    for node in nodes(path):
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


Faults = Iterator[str]
Rule = Callable[[Path], Faults]


def lines_and_files_are_short(path: Path) -> Faults:
    lines = path.read_text(encoding="utf-8").splitlines()
    if long := [number for number, line in enumerate(lines, 1) if len(line) > LINE_LENGTH_MAX]:
        yield f"lines over {LINE_LENGTH_MAX} characters: {long}"
    if len(lines) > FILE_LINES_MAX:
        yield f"{len(lines)} lines, split it"


def blank_lines_are_few(path: Path) -> Faults:
    """One within a block, two between definitions, none at the end; ruff's rule is a preview."""
    text = path.read_text(encoding="utf-8")
    for gap in re.finditer(r"\n\n\n(?:\n| +[^ ])|\n\n\Z", text):
        yield f"too many blank lines behind line {text.count(chr(10), 0, gap.start()) + 1}"


def functions_are_short(path: Path) -> Faults:
    """Of the body alone: a signature is as long as the formatter spreads it."""
    for node in functions(path):
        length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{node.name} (line {node.lineno}) has {length} lines, {FUNCTION_LINES_MAX} do"


def modules_say_what_they_are_for(path: Path) -> Faults:
    if not ast.get_docstring(tree(path)):
        yield "no docstring"
    if any(not isinstance(node, ast.Expr) for node in tree(path).body):
        futures = [line for what, line in imports(path) if what == "__future__.annotations"]
        if not futures:
            yield "no `from __future__ import annotations`"


def public_classes_have_docstrings(path: Path) -> Faults:
    """A function has one unless its name says all."""
    for what, node in public(tree(path).body):
        if isinstance(node, ast.ClassDef) and not ast.get_docstring(node):
            yield f"{what} (line {node.lineno}) has no docstring"


def docstrings_name_their_subject(path: Path) -> Faults:
    for node in (tree(path), *(n for n in nodes(path) if isinstance(n, Definition))):
        text = ast.get_docstring(node) or ""
        if text.partition(" ")[0] in RIDDLES:
            where = getattr(node, "name", "the module")
            yield f"{where} begins with {text.partition(' ')[0]}: say what returns, holds or does"


def functions_are_fully_typed(path: Path) -> Faults:
    for node in functions(path):
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if node.returns is None or any(
            argument.annotation is None and argument.arg not in {"self", "cls"}
            for argument in arguments
        ):
            yield f"{node.name} (line {node.lineno}) is not typed"


def cores_import_no_adapter_clock_chance_or_file(path: Path) -> Faults:
    if path.name != "core.py":
        return
    for what, line in imports(path):
        adapter = re.match(r"streamydb\.\w+\.(spark|kafka|store)\b", what)
        if what.partition(".")[0] in CORE_FORBIDDEN or adapter:
            yield f"must be pure, but imports {what} (line {line})"


def one_module_makes_clients_of_kafka(path: Path) -> Faults:
    if name(path) == KAFKA_CLIENTS or name(path).startswith("bench/"):
        return
    for what, line in imports(path):
        if KAFKA_RAW.fullmatch(what):
            yield f"imports {what} (line {line}): name a kind of client of {KAFKA_CLIENTS}"
    for node in nodes(path):
        if isinstance(node, ast.Import) and "confluent_kafka" in {each.name for each in node.names}:
            yield f"imports all of confluent_kafka (line {node.lineno}): import what it needs"
        if isinstance(node, ast.Call) and re.search(
            r"\bKafka(Reader|Appender|Administrator)$", ast.unparse(node.func)
        ):
            yield f"makes a client itself (line {node.lineno}): ask {KAFKA_CLIENTS}"


def one_list_of_what_decoders_raise(path: Path) -> Faults:
    for node in nodes(path):
        if isinstance(node, ast.ExceptHandler) and "msgspec." in ast.unparse(node.type or node):
            yield f"line {node.lineno} names msgspec's errors: catch records.formats.UNREADABLE"


def nothing_reads_the_environment_at_import(path: Path) -> Faults:
    def reads(node: ast.AST) -> Iterator[int]:
        if isinstance(node, Function | ast.Lambda):
            return
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}:
            yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from reads(child)

    for line in reads(tree(path)):
        yield f"reads the environment at import (line {line})"


def all_is_true(path: Path) -> Faults:
    declared = declared_all(path)
    if declared is None:
        return
    bound = set(bound_names(tree(path).body))
    if len(set(declared)) < len(declared):
        yield "__all__ names something twice"
    if missing := set(declared) - bound:
        yield f"__all__ names what is not there: {missing}"
    if hidden := {what for what, _ in public(tree(path).body) if "." not in what} - set(declared):
        yield f"public but not in __all__: {hidden}"


def packages_declare_their_public_names(path: Path) -> Faults:
    imported = any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree(path).body[2:])
    if path.name == "__init__.py" and imported and declared_all(path) is None:
        yield "exports what others define, but has no __all__"


def nothing_belongs_to_one_machine(path: Path) -> Faults:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield f"a path of one machine (line {number})"


def no_exception_is_made_once_and_raised_often(path: Path) -> Faults:
    """Each time it is raised it keeps one more traceback, with all that its frames hold."""
    made = {
        ast.unparse(target)
        for node in tree(path).body if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }  # fmt: skip
    for node in nodes(path):
        if isinstance(node, ast.Raise) and node.exc and ast.unparse(node.exc) in made:
            yield f"raises what was made when it was imported (line {node.lineno})"


def it_does_not_sleep(path: Path) -> Faults:
    for node in nodes(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}:
            yield f"sleeps in line {node.lineno}: wait for a condition"


def leaders_are_asked_again(path: Path) -> Faults:
    """A broker that has just started refuses as long as it leads none of its partitions."""
    here = path.as_posix().endswith("streamydb/kafka/connection.py")
    for node in nodes(path):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or here:
            continue
        if node.func.attr == "get_watermark_offsets":
            yield f"asks for offsets only once (line {node.lineno}): kafka.connection.watermarks"


def handlers_serve_no_client_of_kafka(path: Path) -> Faults:
    """What a client raises while another error is handled is never freed, nor is the client then:
    see `KafkaAppender`.
    """
    for handler in nodes(path):
        if not isinstance(handler, ast.ExceptHandler):
            continue
        for node in ast.walk(handler):
            if isinstance(node, ast.Attribute) and node.attr in {"poll", "flush", "purge"}:
                yield f"calls {node.attr} in an except (line {node.lineno})"


CODE: list[Rule] = [functions_are_short, modules_say_what_they_are_for, functions_are_fully_typed]
PACKAGE: list[Rule] = [public_classes_have_docstrings, nothing_reads_the_environment_at_import]
PROGRAM: list[Rule] = [
    *PACKAGE, docstrings_name_their_subject, all_is_true, packages_declare_their_public_names
]  # fmt: skip
HOUSE: list[Rule] = [
    *PROGRAM, cores_import_no_adapter_clock_chance_or_file, one_module_makes_clients_of_kafka,
    one_list_of_what_decoders_raise, no_exception_is_made_once_and_raised_often,
    leaders_are_asked_again, handlers_serve_no_client_of_kafka,
]  # fmt: skip
FOLDERS: dict[str, list[Rule]] = {
    "streamydb": HOUSE,
    "layers": HOUSE,
    "jobs": PACKAGE,
    "simulator": PROGRAM,
    "histories": PROGRAM,
    "tests": [it_does_not_sleep, leaders_are_asked_again],
}  # fmt: skip
"""What holds for all code, for the code of packages, and in one folder."""


def rules(path: Path) -> Iterator[Rule]:
    """Walk over the rules that a file has to keep."""
    if path != Path(__file__).resolve():
        yield nothing_belongs_to_one_machine
    if path.suffix == ".py":
        yield lines_and_files_are_short
        yield blank_lines_are_few
        yield from CODE if folder(path) in CODE_FOLDERS else []
        yield from FOLDERS.get(folder(path), [])


@pytest.mark.parametrize("top", sorted({folder(path) for path in files()}))
def test_files_keep_the_rules(top: str) -> None:
    """A test for each folder, not for each file: pytest asks more time for one than its rules."""
    chosen = [path for path in files() if folder(path) == top]
    broken = [
        f"{name(path)}: {rule.__name__}: {fault}"
        for path in chosen
        for rule in rules(path)
        for fault in rule(path)
    ]
    assert chosen
    assert not broken, "\n".join(broken)
