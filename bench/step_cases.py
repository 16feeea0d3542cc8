"""Operations of stored procedures at their worst: one row for each entry of the language's tables.

A row has what is prepared, what is repeated, and the work of one repetition by a model of its own.
`bench.steps` measures the rows, and a test holds the steps of each against its work.
"""

from __future__ import annotations

from typing import Final

from bench.step_model import (
    CALL,
    CHARACTER,
    DEEP,
    DIGIT,
    GAPS,
    ITEM,
    LIST,
    OBJECT,
    TEXT,
    Case,
    E,
    L,
    T,
)
from bench.step_values import VALUE_CASES

__all__ = ["CASES", "PLAIN", "Case"]


def _functions() -> list[Case]:
    wide = "r = range(2 ** 4090, 2 ** 4090 + 20000)"
    return [
        Case("all", LIST, "all(x)", L * OBJECT),
        Case("any", "x = [0] * 20000", "any(x)", L * OBJECT),
        Case("any", GAPS, "any(d)", 10_000 * CHARACTER),
        Case("dict", f"d = {{str(k): 0 for k in range({L})}}", "dict(d)", L * OBJECT),
        Case("dict", f"d = {{str(k): 0 for k in range({L})}}", "dict(**d)", L * OBJECT),
        Case("enumerate", LIST, "enumerate(x)", L * OBJECT),
        Case("enumerate", LIST, "enumerate(x, 2 ** 4090)", L * OBJECT * 4),
        Case("filter", LIST, "filter(None, x)", L * OBJECT),
        Case("map", LIST, "map(str, x)", L * CALL),
        Case("map", "x = [[]] * 20000", "map(str, *x)", L * OBJECT),
        Case("zip", LIST, "zip(x, x)", L * OBJECT * 2),
        Case("zip", "x = [[]] * 20000", "zip(*x)", L * OBJECT),
        Case("isinstance", "x = (int,) * 20000", "isinstance(1, x)", L * OBJECT),
        Case("iter", LIST, "iter(x)", L * ITEM),
        Case("next", LIST, "next(iter(x))", L * ITEM),
        Case("len", LIST, "len(x)", CALL / 4),
        Case("list", LIST, "list(x)", L * ITEM),
        Case("list", wide, "list(r)", L * OBJECT * 4),
        Case("list", GAPS, "list(d)", 10_000 * CHARACTER),
        Case("list", f"t = 'é\\U0001f600' * {L // 2}", "list(t)", L * ITEM * 2),
        Case("tuple", LIST, "tuple(x)", L * ITEM),
        Case("max", f"x = list(range({L}))", "max(x)", L * OBJECT * 2),
        Case("max", f"x = list(range({L}))", "max(*x)", L * OBJECT * 2),
        Case("min", LIST, "min(x, key=lambda each: each)", L * CALL),
        Case("range", "", "range(10)", CALL / 2),
        Case("reversed", LIST, "reversed(x)", L * ITEM),
        Case("sum", LIST, "sum(x)", L * OBJECT * 2),
        Case("sum", "x = [[1] * 100] * 100", "sum(x, [])", 100 * 100 * 50 * ITEM),
        Case("In", wide, "1.5 in r", L * OBJECT * 4),
        Case("In", f"r = range({T})", "1.5 in r", T * OBJECT),
        Case("For", "a = 0", "for i in range(100):\n    a = i", 100 * 50.0),
        Case("While", "a = 0", "i = 0\nwhile i < 100:\n    i += 1", 100 * 50.0),
    ]


def _comparisons() -> list[Case]:
    short = "t = 'a' * 2400\np = 'a' * 600 + 'b' + 'a' * 600"
    literal = "a" * 60_000
    return [
        Case("In", short, "p in t", 1200 * 600 * CHARACTER),
        Case("NotIn", short, "p not in t", 1200 * 600 * CHARACTER),
        Case("In", short, "'' < p in t", 1200 * 600 * CHARACTER),
        Case("In", "t = 'b'", f"t in '{literal}'", 60_000 * CHARACTER / 10),
        Case("In", "t = 'a' * 600 + 'b' + 'a' * 600", f"t in '{'a' * 2400}'",
             1200 * 600 * CHARACTER),
        Case("NotIn", "t = 'b'", f"t not in '{literal}'", 60_000 * CHARACTER / 10),
        Case("Eq", f"t = 'a' * {60_000}", f"t == '{literal}'", 60_000 * CHARACTER / 10),
        Case("NotEq", f"t = 'a' * {60_000}", f"t != '{literal}'", 60_000 * CHARACTER / 10),
        Case("Lt", f"t = 'a' * {60_000}", f"t < '{literal}'", 60_000 * CHARACTER / 10),
        Case("LtE", DEEP, "x <= y", 50 * 4000 * ITEM),
        Case("Gt", DEEP, "x > y", 50 * 4000 * ITEM),
        Case("GtE", DEEP, "x >= y", 50 * 4000 * ITEM),
        Case("Eq", DEEP, "x == y", 4000 * ITEM),
        Case("Is", LIST, "x is None", 10.0),
        Case("IsNot", LIST, "x is not None", 10.0),
        Case("In", f"{LIST}", "2 in x", L * ITEM),
        Case("In", "x = [2 ** 4090 + i for i in range(2000)]\nk = 2 ** 4090 - 1", "k in x",
             2000 * 136 * DIGIT),
    ]  # fmt: skip


def _syntax() -> list[Case]:
    """Code that is long without a loop, and nodes of the tree."""
    long = "; ".join(["a = a + b - 1"] * 2_000)
    listed = "[" + "a + 1, " * 2_000 + "]"
    handled = (
        "def g(n):\n"
        "    try:\n        raise ValueError\n    except ValueError:\n"
        "        if n:\n            return g(n - 1)\n"
        "        for _ in range(1000):\n"
        "            try:\n                raise KeyError\n            except KeyError:\n"
        "                pass"
    )
    arguments = ", ".join(f"p{i}=1" for i in range(2_000))
    literals = ", ".join(f"({k}, 1): 0" for k in range(2_000))
    return [
        Case("Assign", "a, b = 1, 2", long, 2_000 * 100.0),
        Case("List", "a = 1", f"x = {listed}", 2_000 * 30.0),
        Case("List", "a = 2 ** 4090", f"x = {listed}", 2_000 * 150.0),
        Case("Tuple", "a = 1", f"x = ({listed[1:-1]})", 2_000 * 30.0),
        Case("Dict", "a = 1", f"x = {{{literals}}}", 2_000 * OBJECT),
        Case("Set", "a = 1", f"x = {{{listed[1:-1]}}}", 2_000 * OBJECT),
        Case("If", "a, b = 1, 2", f"if a:\n    {long}", 2_000 * 100.0),
        Case("IfExp", "a = 1", f"x = {listed} if a else 0", 2_000 * 30.0),
        Case("BoolOp", "a = 1", "x = " + " and ".join(["a * a"] * 2_000), 2_000 * 100.0),
        Case("NamedExpr", "a = 1", "(y := a * a)", 100.0),
        Case("Lambda", f"a = 1\nf2 = lambda: {listed}", "f2()", 2_000 * 30.0),
        Case("FunctionDef", f"a, b = 1, 2\ndef g(a, b):\n    {long}", "g(1, 2)", 2_000 * 100.0),
        Case("FunctionDef", f"a = 1\ndef g({arguments}):\n    pass", "g()", 2_000 * 10.0),
        Case("Return", "def g():\n    return 1", "g()", CALL),
        Case("ListComp", "a = 1", f"x = [{listed} for _ in range(10)]", 20_000 * 30.0),
        Case("ListComp", GAPS, "x = [k for k in d]", 10_000 * CHARACTER),
        Case("GeneratorExp", LIST, "sum(i for i in x)", L * OBJECT * 2),
        Case("SetComp", LIST, "{i for i in x}", L * OBJECT * 2),
        Case("DictComp", f"x = list(range({E}))", "{i: i for i in x}", E * OBJECT * 3),
        Case("ListComp", "x = [1] * 100", "y = [i for i in x for j in x if j]", 10_000 * 40.0),
        Case("Starred", f"{LIST}\ndef g(*a):\n    pass", "g(*x)", L * ITEM),
        Case("Call", f"d = {{'a' + str(k): 0 for k in range({L})}}\ndef g(**a):\n    pass",
             "g(**d)", L * OBJECT),
        Case("Slice", LIST, "y = x[1:]", L * ITEM),
        Case("Slice", TEXT, "y = t[::-1]", T * CHARACTER),
        Case("Slice", "r = range(10 ** 5)", "y = r[::2]", CALL),
        Case("Subscript", "x = [1, 2]", "; ".join(["x[0]"] * 1000), 1000 * 60.0),
        Case("Delete", LIST, "x.append(1)\ndel x[0]", L * CHARACTER),
        Case("Delete", "d = {str(k): 0 for k in range(1000)}", "d['a'] = 1\ndel d['a']", CALL),
        Case("Add", LIST, "y = x + x", 2 * L * ITEM),
        Case("Add", TEXT, "y = t + 'é'", T * CHARACTER / 10),
        Case("AugAssign", f"{LIST}\ny = []", "y += x\ny.clear()", L * ITEM * 2),
        Case("Mult", LIST, "y = x * 3", 3 * L * ITEM / 2),
        Case("Mult", "", f"y = 'ab' * {T}", T * CHARACTER / 10),
        Case("Try", "x = []", "try:\n    x[1]\nexcept IndexError:\n    pass", 2_000.0),
        Case("Try", "x = []", "\n".join(["try:\n    x[1]\nexcept IndexError:\n    pass"] * 100),
             200_000.0),
        Case("Try", handled, "g(50)", 1_000 * (2_000 + 51 * 20.0)),
        Case("Raise", "", "try:\n    raise ValueError\nexcept ValueError:\n    pass", 2_000.0),
        Case("Assert", "", "try:\n    assert 0\nexcept AssertionError:\n    pass", 2_000.0),
        Case("Call", "def g():\n    pass", "g()", CALL),
        Case("Attribute", "", "db.now", 50.0),
    ]  # fmt: skip


def _views() -> list[Case]:
    stored = "db.put('a', [[0.5, {}], 1] * 9000)"
    flat = "db.put('a', [1] * 90000)"
    return [
        Case("ProcedureView.get", stored, "db.get('a')", 9_000 * 3 * OBJECT),
        Case("ProcedureView.get", flat, "db.get('a')", 90_000 * ITEM),
        Case("ProcedureView.get", "db.put('a', ['0123456789'] * 9000)", "db.get('a')",
             9_000 * OBJECT),
        Case("ProcedureView.exists", "", "db.exists('a')", CALL),
        Case("ProcedureView.version", "", "db.version('a')", CALL),
        Case("ProcedureView.put", "x = [1] * 90000", "db.put('a', x)", 90_000 * ITEM),
        Case("ProcedureView.put", "x = [[0.5, {}], 1] * 9000", "db.put('a', x)", 9_000 * OBJECT),
        Case("ProcedureView.put", "t = 'é\\n' * 40000", "db.put('a', t)", 80_000 * CHARACTER),
        Case("ProcedureView.put", "d = {str(k): 0 for k in range(9000)}", "db.put('a', d)",
             9_000 * OBJECT),
        Case("ProcedureView.append", flat, "db.append('a', 1)", 180_000 * CHARACTER / 10),
        Case("ProcedureView.delete", "", "db.delete('a')", CALL * 2),
        Case("ProcedureView.touch", "db.put('a', 1)", "db.touch('a', ttl_ms=5)", CALL * 3),
        Case("ProcedureView.add", "db.put('a', 1)", "db.add('a', 1)", CALL * 4),
        Case("ProcedureView.max", "db.put('a', 1)", "db.max('a', 1)", CALL * 4),
        Case("ProcedureView.min", "db.put('a', 1)", "db.min('a', 1)", CALL * 4),
        Case("ProcedureView.next_id", "db.put('a', 1)", "db.next_id('a')", CALL * 3),
        Case("ProcedureView.scan", "", "db.scan('r/')", 2_000 * OBJECT * 4),
        Case("ProcedureView.count", "", "db.count('r/')", 2_000 * OBJECT),
        Case("ProcedureView.count", "t = 'r/' + 'é' * 200000", "db.count(start='r/', end=t)",
             200_000 * CHARACTER),
        Case("ProcedureView.emit", "x = [1] * 100", "db.emit('s', x)", 100 * ITEM),
        Case("ProcedureView.window", "", "db.window('w')", CALL),
        Case("ProcedureView.call", "", "db.call('inner', x=[1] * 1000)", 1_000 * ITEM),
        Case("SlidingWindow.insert", "w = db.window('w')\nx = [1] * 1000", "w.insert(x)",
             1_000 * ITEM * 2),
        Case("SlidingWindow.items",
             "w = db.window('w')\nfor i in range(400):\n    w.insert([1] * 100)", "w.items()",
             40_000 * ITEM),
        Case("SlidingWindow.slid", "w = db.window('w')", "w.slid()", CALL),
        Case("Random.random", "", "db.random.random()", CALL * 3),
        Case("Random.randint", "", "db.random.randint(0, 2 ** 63)", CALL * 4),
        Case("Random.choice", LIST, "db.random.choice(x)", CALL * 4),
        Case("Random.shuffle", "x = [1] * 1000", "db.random.shuffle(x)", 1000 * CALL * 4),
    ]  # fmt: skip


CASES: Final = [
    *VALUE_CASES, *_functions(), *_comparisons(), *_syntax(), *_views()
]  # fmt: skip
"""All rows."""

PLAIN: Final = frozenset([
    "AnnAssign", "Break", "Compare", "BinOp", "UnaryOp", "Constant", "Continue", "Expr", "Import",
    "ImportFrom", "Name", "Nonlocal", "Pass", "And", "Or",
])  # fmt: skip
"""Kinds of nodes without work of their own: that of their parts is in `CASES`."""
