"""Modules of procedures: compiled once for a process, found by name and hash.

The hash is that of the file's bytes, so it says which code a transaction ran, whatever the folder
holds. Where modules come from is behind `Modules`; `folder` has the one on disk.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, MethodType
from typing import Any, Final, NamedTuple, Protocol

from streamydb.errors import ConfigurationError, ModuleMissing
from streamydb.procedures.builtins import EXCEPTIONS, FUNCTIONS, bound
from streamydb.procedures.checker import Refusal, check_text, is_workflow, literals_of
from streamydb.procedures.graph import WorkflowGraph, graph_of
from streamydb.procedures.guesses import SPECULATIVE
from streamydb.procedures.machine import HELPERS, Machine
from streamydb.procedures.namespaces import MATH
from streamydb.procedures.nodes import INTEGER, LIST, TYPE
from streamydb.procedures.quick import QUICK
from streamydb.procedures.speculation import speculative
from streamydb.procedures.transform import instrument
from streamydb.records.decoder import module_key

_CACHED_MODULES: Final = 256


class ModuleRefused(ConfigurationError):  # noqa: N818 - the verb of the contract
    """A module says what a procedure must not; ``refusals`` has each line."""

    def __init__(self, refusals: list[Refusal]) -> None:
        super().__init__("\n".join(map(str, refusals)))
        self.refusals = refusals


class Module(NamedTuple):
    """A compiled module.

    ``procedures``: name -> names of the arguments. ``fixed``, ``helpers``, ``functions``: what its
    code finds in its namespace, in each call anew: as it is, of the machine, built-in.
    ``graph``: its workflow.  ``workspaces``: namespaces that calls have left for the next one.
    ``quick``: helpers that stand for several of the machine. ``speculative``: the same module in
    the form of `speculation`, if it has one.
    """

    name: str
    hash: str
    code: CodeType
    procedures: dict[str, tuple[str, ...]]
    keyed: frozenset[str]
    fixed: dict[str, Any]
    helpers: tuple[str, ...]
    functions: tuple[str, ...]
    imported: tuple[str, ...]
    workspaces: Workspaces
    graph: WorkflowGraph | None = None
    quick: Mapping[str, Callable[..., Any]] = QUICK
    speculative: Module | None = None

    @property
    def key(self) -> str:
        """Return the key that says which version of the module is current."""
        return module_key(self.name)

    @property
    def record(self) -> dict[str, Any]:
        """Return the field ``deploy`` of a transaction that deploys it."""
        return {"module": self.name, "hash": self.hash, "procedures": self.procedures}

    @contextmanager
    def namespace(self, machine: Machine) -> Iterator[dict[str, Any]]:
        """A fresh namespace in which ``code`` has been executed, for one use."""
        names: dict[str, Any] = {}
        try:
            self.load(machine, names)
            yield names
        finally:
            names.clear()

    def load(self, machine: Machine, names: dict[str, Any]) -> None:
        """Execute ``code`` in an empty namespace, against a machine.

        Its functions refer to the namespace, so whoever made it empties it at the end: else each
        would leave a cycle of seven kilobytes for the collector of garbage, and where that is off,
        for good.
        """
        names.update(self.fixed)
        names["__builtins__"] = {}
        for name in self.helpers:
            helper = self.quick.get(name)
            made = getattr(machine, name) if helper is None else MethodType(helper, machine)
            names[f"__{name}__"] = made
        for name in self.functions:
            names[name] = bound(machine, name)
        for name in self.imported:
            names[name] = _imported(machine, name)
        exec(self.code, names)  # noqa: S102 - checked, instrumented, and without built-ins

    def load_into(self, workspace: Workspace) -> None:
        """Execute ``code`` in a workspace."""
        steps = workspace.machine.left
        self.load(workspace.machine, workspace.names)
        workspace.spent = steps - workspace.machine.left
        workspace.loaded = True


class Modules(Protocol):
    """A source of modules."""

    def find(self, name: str, digest: str) -> Module:
        """The module of this name and hash.
        Raises ModuleMissing: it is not here, or it is refused; the message says what to do.
        """


class MemoryModules:
    """Modules in memory, for tests, the simulator, and clients that have the file."""

    def __init__(self, texts: Mapping[str, bytes] | None = None) -> None:
        self.texts = dict(texts or {})

    def put(self, text: bytes) -> str:
        """Take one more module; its hash."""
        digest = hash_of(text)
        self.texts[digest] = text
        return digest

    def find(self, name: str, digest: str) -> Module:
        """As `Modules.find`."""
        if digest not in self.texts:
            fix = "start with --procedures FOLDER, the folder that has its file"
            raise ModuleMissing(missing(name, digest, fix))
        return compile_module(name, self.texts[digest])


NO_MODULES: Final = MemoryModules()
"""Where there are none."""


def missing(name: str, digest: str, fix: str) -> str:
    """The message about a module that is not there."""
    return f"module {name} {digest} is deployed in the log, and not on this machine: {fix}"


def hash_of(text: bytes) -> str:
    """The hash that names a module's text."""
    return "sha256:" + hashlib.sha256(text).hexdigest()


def compile_module(name: str, text: bytes, file: str | None = None) -> Module:
    """Check and compile a module; compiled ones are kept.
    Raises ModuleRefused: it says what a procedure must not.
    """
    return _compiled(name, text, file or f"{name}.py")


@lru_cache(maxsize=_CACHED_MODULES)
def _compiled(name: str, text: bytes, file: str) -> Module:
    checked = check_text(text, file)
    if checked.refusals:
        raise ModuleRefused(checked.refusals)
    tree = checked.tree
    procedures, keyed = _procedures(tree)
    if not procedures:
        reason = "no procedure: give one a first argument db, or mark it with @procedure"
        raise ModuleRefused([Refusal(file, 1, reason)])
    graph = _graph(tree, file, procedures, keyed)
    fixed, imported = _imports(tree)
    workspaces = Workspaces(keeps_nothing(tree))
    copied = copy.deepcopy(tree)
    tree = instrument(tree)
    module = Module(
        name,
        hash_of(text),
        _code(tree, name, file),
        procedures,
        keyed,
        *_loaded(tree, fixed, QUICK),
        imported,
        workspaces,
        graph,
    )
    if graph is not None or imported or fixed or not keeps_nothing(copied):
        return module
    return module._replace(speculative=_speculative(module, copied, file))


def _speculative(module: Module, tree: ast.Module, file: str) -> Module | None:
    """The speculative form of a module, whose tree this is; None: it has none."""
    made = speculative(tree)
    if made is None:
        return None
    try:
        code = _code(made, module.name, file)
    except ModuleRefused:  # it has deeper nests than the other form
        return None
    fixed, named, functions = _loaded(made, {}, SPECULATIVE)
    return module._replace(
        code=code, fixed=fixed, helpers=named, functions=functions,
        workspaces=Workspaces(lasting=True), quick=SPECULATIVE,
    )  # fmt: skip


def _loaded(
    tree: ast.Module, fixed: dict[str, Any], quick: Mapping[str, Callable[..., Any]]
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return what code of this tree finds in its namespace: see `Module`."""
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    types = {LIST: list, TYPE: type, INTEGER: int}
    return (
        fixed | {each: kind for each, kind in {**types, **EXCEPTIONS}.items() if each in loaded},
        tuple(helper for helper in dict.fromkeys((*HELPERS, *quick)) if f"__{helper}__" in loaded),
        tuple(each for each in FUNCTIONS if each in loaded),
    )


def _code(tree: ast.Module, name: str, file: str) -> CodeType:
    """The code object; asserts stay whatever Python's flags are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(tree, f"<{name}>", "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:  # what only the compiler finds, as a `break` outside a loop
        refusal = Refusal(file, error.lineno or 1, f"not Python: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        refusal = Refusal(file, 1, f"not Python: {type(error).__name__}")
    raise ModuleRefused([refusal])


def _procedures(tree: ast.Module) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
    """The procedures with their arguments, and those that tell their keys."""
    found: dict[str, tuple[str, ...]] = {}
    keyed = set()
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        first = [*node.args.posonlyargs, *node.args.args][:1]
        public = not node.name.startswith("_") and bool(first) and first[0].arg == "db"
        if not node.decorator_list and not public:
            continue
        given = [*node.args.posonlyargs, *node.args.args][1:] + node.args.kwonlyargs
        found[node.name] = tuple(arg.arg for arg in given)
        if any(isinstance(mark, ast.Call) and mark.keywords for mark in node.decorator_list):
            keyed.add(node.name)
    return found, frozenset(keyed)


def _graph(
    tree: ast.Module, file: str, procedures: Collection[str], keyed: Collection[str]
) -> WorkflowGraph | None:
    """The workflow that a module declares, which is taken out of its tree."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_workflow(node.value):
            tree.body.remove(node)
            try:
                return graph_of(literals_of(node.value), procedures, keyed)
            except ValueError as error:
                raise ModuleRefused([Refusal(file, node.lineno, str(error))]) from None
    return None


def _imports(tree: ast.Module) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what imports give: objects as they are, and functions of `math` by name."""
    fixed: dict[str, Any] = {}
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            fixed |= {a.asname or a.name: MATH for a in node.names if a.name == "math"}
        elif isinstance(node, ast.ImportFrom) and node.module == "math":
            imported += [alias.name for alias in node.names]
    return fixed, tuple(imported)


def _imported(machine: Machine, name: str) -> Any:
    value = MATH.value(name)
    if not callable(value):
        return value

    def call(*args: Any) -> Any:
        machine.tick()
        return value(machine, *args)

    return call


# To execute a module's code for each call anew costs as much as a short procedure. Where nothing in
# its namespace can change (`keeps_nothing`), the next call finds what the first one found, and is
# charged the steps of the code as if it had been executed again.
_KEPT: Final = 8
"""Workspaces that a module keeps: as many calls as run at a time in one process, about."""


class Workspace:
    """A machine, and the names of a module whose helpers are its methods.

    ``names``: whole when ``loaded`` says so: the module's code has been executed in it. ``spent``:
    the steps of that.
    """

    __slots__ = ("loaded", "machine", "names", "spent")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.names: dict[str, Any] = {}
        self.loaded = False
        self.spent = 0


class Workspaces:
    """The workspaces of a module that no call uses at the moment."""

    __slots__ = ("_free", "_lasting")

    def __init__(self, lasting: bool) -> None:  # noqa: FBT001
        """``lasting``: nothing in the module's namespace can change."""
        self._lasting = lasting
        self._free: list[Workspace] = []

    def taken(self, steps: int) -> Workspace:
        """Return one with steps for a call, and for the module's code if it is not loaded."""
        try:
            found = self._free.pop()
        except IndexError:  # there is none, or another thread has it
            pass
        else:
            if steps >= found.spent:  # else its code ends the call, at its place
                found.machine.begin(steps - found.spent)
                return found
        machine = Machine()
        machine.left = steps
        return Workspace(machine)

    def left(self, workspace: Workspace) -> None:
        """Take back what a call has used; what is not kept is emptied, as it refers to itself."""
        if self._lasting and workspace.loaded and len(self._free) < _KEPT:
            self._free.append(workspace)
        else:
            workspace.names.clear()


def keeps_nothing(tree: ast.Module) -> bool:
    """Return True if nothing that a module's names stand for can change, nor the defaults of its
    functions: so a call can leave nothing there.
    """
    return all(map(_is_constant, tree.body))


def _is_constant(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        marks = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
        given = [keyword.value for mark in marks for keyword in mark.keywords]
        return _are_constant(node.args) and all(map(_is_fixed, given))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return node.value is None or _is_fixed(node.value)
    return True


def _are_constant(arguments: ast.arguments) -> bool:
    return all(map(_is_fixed, [*arguments.defaults, *filter(None, arguments.kw_defaults)]))


def _is_fixed(node: ast.expr) -> bool:
    """Return True if an expression gives something that cannot change, if its names do.

    A name stands for what another line gives, for a function, or for what is built in.
    """
    if isinstance(node, ast.Lambda):
        return _are_constant(node.args)
    if isinstance(node, ast.Tuple):
        return all(map(_is_fixed, node.elts))
    if isinstance(node, ast.BinOp):
        return _is_fixed(node.left) and _is_fixed(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_fixed(node.operand)
    return isinstance(node, ast.Constant | ast.Name)
