"""What a module must not say is refused with its line; what runs cannot stall, escape or differ."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from streamydb.limits import MODULE_BYTES_MAX, PROCEDURE_DEPTH_MAX, PROCEDURE_STEPS_MAX
from streamydb.procedures.checker import check_text
from streamydb.procedures.core import run
from streamydb.procedures.modules import ModuleRefused, compile_module
from streamydb.procedures.view import Stamp
from tests.support.procedures import Host, call, evaluate, module_of, returned

REFUSED = [
    ("import os\ndef f(db): pass", 1, "machine"),
    ("import time\ndef f(db): pass", 1, "db.now"),
    ("import random\ndef f(db): pass", 1, "db.random"),
    ("from datetime import datetime\ndef f(db): pass", 1, "db.now"),
    ("import re\ndef f(db): pass", 1, "for ever"),
    ("from math import sin\ndef f(db): return sin(1)", 1, "exact"),
    ("import numpy as np\ndef f(db): pass", 1, "imports math"),
    ("from . import x\ndef f(db): pass", 1, "imports math"),
    ("def f(db):\n    import os", 2, "machine"),
    ("def f(db):\n    return open('/etc/passwd').read()", 2, "no files"),
    ("def f(db):\n    return eval('1')", 2, "run time"),
    ("def f(db):\n    exec('1')", 2, "run time"),
    ("def f(db):\n    return id(db)", 2, "differs"),
    ("def f(db):\n    return hash('a')", 2, "differs"),
    ("def f(db):\n    return globals()", 2, "do not have it"),
    ("def f(db):\n    return getattr(db, 'x')", 2, "do not have it"),
    ("def f(db):\n    return type(db)", 2, "do not have it"),
    ("def f(db):\n    return vars(db)", 2, "do not have it"),
    ("def f(db):\n    print(1)", 2, "no output"),
    ("def f(db):\n    return frozenset()", 2, "hash"),
    ("def f(db):\n    return ().__class__", 2, "private"),
    ("def f(db):\n    return db._host", 2, "private"),
    ("def f(db):\n    return f.__globals__", 2, "private"),
    ("def f(db):\n    return __builtins__", 2, "underscores"),
    ("def f(db):\n    return __tick__()", 2, "underscores"),
    ("def f(db, __tick__): pass", 1, "underscores"),
    ("def f(db):\n    g(__x=1)", 2, "underscores"),
    ("def f(db):\n    db.now = 3", 2, "not assigned"),
    ("N = 0\ndef f(db):\n    global N\n    N = 1", 3, "nothing between calls"),
    ("SEEN = {}\ndef f(db):\n    SEEN['a'] = 1", 3, "database"),
    ("SEEN = []\ndef f(db):\n    SEEN.append(1)", 3, "database"),
    ("N = [1]\ndef f(db):\n    N += [1]", 3, "database"),
    ("X = f()\ndef f(db): pass", 1, "literals"),
    ("for i in range(3):\n    pass\ndef f(db): pass", 1, "imports, constants and functions"),
    ("class A: pass\ndef f(db): pass", 1, "classes"),
    ("def f(db):\n    class A: pass", 2, "classes"),
    ("async def f(db): pass", 1, "coroutines"),
    ("def f(db):\n    yield 1", 2, "generator"),
    ("def f(db):\n    with db: pass", 2, "no with"),
    ("def f(db):\n    try:\n        pass\n    except:\n        pass", 4, "except names"),
    (
        "def f(db):\n    try:\n        pass\n    except BaseException:\n        pass",
        4,
        "except names",
    ),
    ("def f(db):\n    try:\n        pass\n    except ValueError as e:\n        return e", 4, "as"),
    ("def f(db):\n    try:\n        pass\n    finally:\n        return 1", 5, "no finally"),
    ("def f(db):\n    return 1 is 1", 2, "`is`"),
    ("def f(db, x):\n    return x is not f", 2, "`is`"),
    ("def f(db, x):\n    match x:\n        case 1: pass", 2, "no match"),
    ("def f(db, x):\n    a, *b = x", 2, "assignment"),
    ("def f(db, x):\n    x[1:2] = [3]", 2, "slices"),
    ("def f(db):\n    return b'x'", 2, "bytes"),
    ("def f(db):\n    return 1j", 2, "complex"),
    ("def f(db, x):\n    return f'{x!a}'", 2, "!a"),
    ("@cache\ndef f(db): pass", 1, "@procedure"),
    ("@procedure(1)\ndef f(db): pass", 1, "keys="),
    ("def f(db):\n    return 1 +", 2, "not Python"),
    ("def f(db):\n    break", 2, "not Python"),
    ("def f(db):\n    nonlocal __tick__", 2, "not Python"),
    ("def f(db, x, x): pass", 1, "not Python"),
    ("return 1\ndef f(db): pass", 1, "imports, constants"),
    ("def f(db):\n    for db.now in [1]:\n        pass", 2, "not assigned"),
    ("def f(db):\n    del db.now", 2, "not assigned"),
    ("import math as __tick__\ndef f(db): pass", 1, "underscores"),
    ("from math import floor as __tick__\ndef f(db): pass", 1, "another name"),
    ("x = 1", 1, "no procedure"),
    ("", 1, "no procedure"),
    ("def f(db):\n    ünter = 1", 2, "ASCII"),
    (
        "def f(db):\n    return [[[[[1 for a in x] for b in x] for c in x] for d in x] for e in x]",
        2,
        "deeply",
    ),
    ("def f(db):\n    return " + "-" * 150 + "1", 2, "deeply"),
]


@pytest.mark.parametrize(("text", "line", "reason"), REFUSED)
def test_a_refusal_names_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(ModuleRefused) as caught:
        compile_module("bank", text.encode(), "bank.py")
    found = [str(refusal) for refusal in caught.value.refusals]
    assert any(each.startswith(f"bank.py:{line}: ") and reason in each for each in found), found


def test_all_refusals_are_told_at_once_and_odd_bytes_are_no_crash() -> None:
    text = "import os\nimport sys\n\ndef f(db):\n    open(1)\n    eval(2)\n"
    assert [each.line for each in check_text(text.encode(), "x.py").refusals] == [1, 2, 5, 6]
    for odd in (b"\xff", b"\0", b"(" * 5000, b"x=" + b"[" * 500, b"#" * (MODULE_BYTES_MAX + 1)):
        assert check_text(odd, "x.py").refusals


ENDLESS = [
    "while True:\n    pass",
    "x = 0\nwhile True:\n    x += 1",
    "for i in range(10**18):\n    pass",
    "return [i for i in range(10**18)]",
    "return sum(i for i in range(10**18))",
    "return sum(range(10**18))",
    "return list(range(10**12))",
    "return sorted(range(10**12))",
    "return max(range(10**12))",
    "return 1.5 in range(10**12)",
    "return dict(enumerate(range(10**9)))",
    "return list(zip(range(10**9), range(10**9)))",
    "return [*range(10**9)]",
    "return 'a' * 10**10",
    "return [0] * 10**9",
    "return 10**9 * (1, 2)",
    "return 'a'.ljust(10**9)",
    "try:\n    'a'.ljust(math.inf)\nexcept TypeError:\n    pass\nwhile True:\n    pass",
    "return 'ab'.replace('', 'x' * 100000).replace('x', 'y' * 100000)",
    "return ('x' * 10**6).join([''] * 10**5)",
    "s = 'ab'\nwhile True:\n    s += s",
    "s = [1]\nwhile True:\n    s += s",
    "s = [1]\nwhile True:\n    s.extend(s)",
    "s = {1}\nwhile True:\n    s = s | {max(s) + 1}",
    "return 10 ** 10 ** 10",
    "x = 3\nwhile True:\n    x = x * x",
    "x = 3\nwhile True:\n    x *= x",
    "return 1 << 10**12",
    "x = 1\nwhile True:\n    x = x << 64",
    "return round(5, -400) * 10 ** 400 ** 3",
    "x = []\nwhile True:\n    x = [x]\n    x == [1]",
    "x = [1]\nfor i in range(60):\n    x = [x, x]\nreturn x",
    "x, y = [1], [1]\nfor i in range(60):\n    x, y = [x, x], [y, y]\nreturn x == y",
    "x = (1,)\nfor i in range(60):\n    x = (x, x)\nreturn {x: 1}",
    "x = (1,)\nfor i in range(60):\n    x = (x, x)\nreturn x in {1: 2}",
    "x = [1]\nfor i in range(60):\n    x = [x, x]\nreturn str(x)",
    "x = []\nx.append(x)\nreturn str(x)",
    "x = [1]\nfor i in range(60):\n    x = [x, x]\ndb.put('a', x)",
    "def g(n):\n    return g(n + 1)\nreturn g(0)",
    "g = lambda h, n: h(h, n + 1)\nreturn g(g, 0)",
    "def g():\n    try:\n        return g()\n    except Exception:\n        return g()\nreturn g()",
    "while 1:\n    try:\n        while 1:\n            pass\n    except Exception:\n        pass",
    "while True:\n    try:\n        raise ValueError\n    except ValueError:\n        continue",
    "while db.get('a') is None:\n    pass",
    "while True:\n    db.put('a', 1)",
    "for i in range(10**9):\n    db.append('a', 'x' * 1000)",
    "return [x for x in [0] * 1000 for y in [0] * 1000]",
    "return {x: y for x in range(1000) for y in range(1000)}",
    "while 1:\n    math.gcd(2**4000 - 1, 3**2500)",
    "while 1:\n    math.isqrt(2**4000)",
    "x = 10**1200\nwhile 1:\n    int(str(x)[:999])",
    "out = []\nwhile 1:\n    out += [{}, {}, {}, {}, {}, {}, {}, {}]",
    "return list(map(lambda x: [0] * 10000, range(10**6)))",
    "x = [0] * 400000\nwhile len(x) > 1:\n    del x[0]",
]  # fmt: skip


@pytest.mark.parametrize("body", ENDLESS)
def test_nothing_stalls_or_fills_the_memory(body: str) -> None:
    called = evaluate(body)
    assert called.code in ("budget-exceeded", "value-too-large"), (called.code, called.reason)
    assert called.writes == {}


FAILING = [
    ("return 1 / 0", "ZeroDivisionError"),
    ("return [1][5]", "IndexError"),
    ("return {}['a']", "KeyError"),
    ("return None + 1", "TypeError"),
    ("return nothing", "NameError"),
    ("assert 1 > 2, 'no'", "AssertionError"),
    ("raise ValueError('x' * 10)", "ValueError"),
    ("raise 5", "TypeError"),
    ("return '%s' % 1", "TypeError"),
    ("return '%999999999d' % 1", "TypeError"),
    ("return f'{1:>99999}'", "ValueError"),
    ("w = 10**9\nreturn f'{1:{w}}'", "ValueError"),
    ("return '{0.__class__}'.format(1)", "AttributeError"),
    ("return 'a'.encode()", "AttributeError"),
    ("return db.host", "AttributeError"),
    ("return db.machine.left", "AttributeError"),
    ("def g(x=db.host):\n    pass", "AttributeError"),
    ("return [d.host for d in [db]]", "AttributeError"),
    ("return f'{db.host}'", "AttributeError"),
    ("return ValueError('x').args", "AttributeError"),
    ("return Abort.reason", "AttributeError"),
    ("return math.names", "AttributeError"),
    ("return math.pi()", "TypeError"),
    ("return (lambda: 1).anything", "AttributeError"),
    ("return db == db", "TypeError"),
    ("return {db: 1}", "TypeError"),
    ("return sorted([db])", "TypeError"),
    ("return len.anything", "AttributeError"),
    ("return math.sin(1)", "AttributeError"),
    ("return 2.0 ** 0.5", "TypeError"),
    ("return 2 ** -1", "TypeError"),
    ("return int('9' * 5000)", "ValueError"),
    ("return float('nan')", "ValueError"),
    ("return str(lambda: 1)", "TypeError"),
    ("return f'{f}'", "TypeError"),
    ("return str({1})", "TypeError"),
    ("return f", "TypeError"),
    ("return db", "TypeError"),
    ("return {1, 2}", "TypeError"),
    ("return (x for x in [1])", "TypeError"),
    ("return {1: 2}", "TypeError"),
    ("return 2 ** 70", "OverflowError"),
    ("return 1e308 * 10", "TypeError"),
    ("return '\\ud800'", "TypeError"),
    ("db.put('a', {1})", "TypeError"),
    ("db.put('a', None)", "ValueError"),
    ("db.get(5)", "TypeError"),
    ("db.add('a', '1')", "TypeError"),
    ("return {}.keys() - {}.keys()", "TypeError"),
    ("return isinstance(1, f)", "TypeError"),
    ("x = {}\nx[[1]] = 2", "TypeError"),
    ("return {f: 1}", "TypeError"),
    ("return [f] == [f]", "TypeError"),
    ("return next(iter([]))", "StopIteration"),
    ("return f.anything", "AttributeError"),
    ("return f.anything()", "AttributeError"),
    ("return 'abc'.upper", "AttributeError"),
]


@pytest.mark.parametrize(("body", "kind"), FAILING)
def test_an_exception_aborts_with_its_class_only(body: str, kind: str) -> None:
    called = evaluate(body)
    assert (called.code, called.reason) == ("procedure-error", kind)


WORKING: list[tuple[str, Any]] = [
    ("return [i * i for i in range(4) if i % 2]", [1, 9]),
    ("x = {'b': 1, 'a': 2}\nx['a'] += 5\nreturn [*x.items()]", [["b", 1], ["a", 7]]),
    ("x, y = 1, 2\nx, y = y, x\nreturn {**{'x': x}, 'y': y}", {"x": 2, "y": 1}),
    ("return list({3, 1, 2, 1} | {9, 3})", [3, 1, 2, 9]),
    ("return list({3, 1, 2} & {1, 2}) + list({1, 2, 3} - {2}) + list({1, 2} ^ {2, 5})",
     [1, 2, 1, 3, 1, 5]),
    ("return sorted(['b', 'a', 'C'], key=lambda s: s.lower(), reverse=True)", ["C", "b", "a"]),
    ("x = [3, 1]\nx.sort()\nx += (5,)\ny = x\ny += [6]\nreturn x", [1, 3, 5, 6]),
    ("return 'a-b'.split('-') + ['x'.join(c for c in 'abc')]", ["a", "b", "axbxc"]),
    ("return f'{1.5:08.2f}|{\"a\":<4}|{[1, \"b\"]}|{None!r}|{True}'",
     "00001.50|a   |[1, 'b']|None|True"),
    ("return [max([1, 5, 3]), min(4, 2), sum([1, 2.5]), abs(-3), round(2.567, 2), divmod(7, 2)]",
     [5, 2, 3.5, 3, 2.57, [3, 1]]),
    ("return [math.floor(2.7), math.sqrt(9), math.isqrt(17), math.gcd(12, 18)]", [2, 3, 4, 6]),
    ("return [isinstance(1, int), isinstance('a', (int, str)), isinstance({1}, set)]",
     [True, True, True]),
    ("try:\n    {}['x']\nexcept (KeyError, ValueError):\n    return 'none'", "none"),
    ("try:\n    raise Abort('a')\nexcept Abort:\n    return 'caught'", "caught"),
    ("n = 0\ndef g():\n    nonlocal n\n    n += 1\n    return n\nreturn [g(), g()]", [1, 2]),
    ("return [x for x in [1, 2, 3]][::-1][:2] + ['abc'[1:]]", [3, 2, "bc"]),
    ("return 1 < 2 <= 2 != 3 and 'a' in ['a'] and 2 not in {1: 1}", True),
    ("if (n := 5) > 3:\n    return n", 5),
    ("x: int = 3\nx //= 2\nx <<= 3\nx |= 1\nreturn x", 9),
    ("d = {}\nfor c in 'abca':\n    d.setdefault(c, []).append(1)\nreturn d",
     {"a": [1, 1], "b": [1], "c": [1]}),
    ("return [list(zip([1, 2], 'ab')), list(reversed([1, 2])), any([0, 1]), all([])]",
     [[[1, "a"], [2, "b"]], [2, 1], True, True]),
    ("for i in range(3):\n    pass\nelse:\n    return i", 2),
    ("return dict([('a', 1)], b=2)", {"a": 1, "b": 2}),
    ("return next((x for x in [1, 2, 3] if x > 1), None)", 2),
    ("g = [1]\nfor i in range(2000):\n    g = (x for x in g)\nreturn next(g)", 1),
    ("def g(*a, k=1, **n):\n    return [a, k, n]\nreturn g(*[1, 2], **{'z': 3})", [[1, 2],
     1, {"z": 3}]),
    ("return [10**30 % 7, -7 // 2, 7 & 3, 2**62, 5 >> 1, ~5]", [1, -4, 3, 2**62, 2, -6]),
    ("return len({(1, 2): 3, (1, 2): 4})", 1),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), WORKING)
def test_ordinary_python_works(body: str, expected: Any) -> None:
    assert returned(evaluate(body)) == expected


def test_nothing_is_kept_between_calls() -> None:
    module = module_of(
        """
        RATES = {"a": [1]}

        def f(db, xs=[]):
            xs.append(1)
            alias = RATES["a"]
            alias.append(2)
            return [xs, RATES["a"]]
        """
    )
    assert returned(call(module, "f", {})) == [[1], [1, 2]]
    assert returned(call(module, "f", {})) == [[1], [1, 2]]


def test_a_stop_cannot_be_caught_and_stands() -> None:
    called = evaluate(
        """
        for i in range(5):
            try:
                db.get("forbidden")
            except Exception:
                pass
        """
    )
    assert (called.code, called.reason) == ("undeclared-key", "forbidden")


def test_the_bounds_are_exact() -> None:
    body = "for i in range(n):\n    pass"
    most = PROCEDURE_STEPS_MAX - evaluate(body, n=0).steps
    assert evaluate(body, n=most).code is None
    assert evaluate(body, n=most + 1).code == "budget-exceeded"
    deep = "def g(n):\n    return 0 if n == 0 else g(n - 1)\nreturn g(n)"
    assert evaluate(deep, n=PROCEDURE_DEPTH_MAX - 2).code is None
    called = evaluate(deep, n=PROCEDURE_DEPTH_MAX - 1)
    assert (called.code, called.reason) == ("budget-exceeded", "depth")


def test_a_text_that_no_budget_allows_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers of 4,000 bits need hundreds of characters each, and only texts cost by length."""
    assert returned(evaluate("return len(repr([2 ** 4000, {'a': -2 ** 999}]))")) == 1518
    monkeypatch.setattr("streamydb.procedures.text_meter.pinned_repr", None)
    called = evaluate("return len(repr([{'a': 2 ** 4000}] * 50000))")
    assert (called.code, called.reason) == ("budget-exceeded", "steps")


@pytest.mark.parametrize(
    "statement", ["import math", "from math import floor", "from typing import Any", "x: int"]
)
def test_what_says_nothing_may_be_all_that_a_block_has(statement: str) -> None:
    assert returned(evaluate(f"x = 1\nif x:\n    {statement}\nreturn x + 1")) == 2


def test_the_count_of_steps_is_pinned() -> None:
    """Another count would change verdicts of logs that exist: a change here is a new language."""
    text = """
        db.put("a", {"x": [1, 2, 3]})
        total = 0
        for i in range(10):
            total += i * n
        names = sorted({str(k) for k in range(20)}, key=lambda s: (len(s), s))
        db.append("b", names)
        return f"{total} {names[:3]} {db.get('a')}"
    """
    called = evaluate(text, n=3)
    assert called.steps == 199
    assert returned(called) == "135 ['0', '1', '2'] {'x': [1, 2, 3]}"


@pytest.mark.parametrize(
    ("body", "steps"), [("del x[0]", 101), ("del x[0], y[x[0]]", 101), ("del y[0]", 0)]
)
def test_to_delete_from_a_list_costs_by_its_length(body: str, steps: int) -> None:
    made = module_of(
        f"""
        def empty(db):
            x, y = [0] * 1600, {{0: 1}}

        def full(db):
            x, y = [0] * 1600, {{0: 1}}
            {body}
        """
    )
    place = Stamp(1, 1, "t")
    full, empty = (run(made, name, b"{}", Host({}, []), place) for name in ("full", "empty"))
    assert full.code is None
    assert full.steps - empty.steps == steps


def test_the_same_in_every_process() -> None:
    """Hash seeds differ from process to process; what procedures do, does not."""
    script = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from tests.support.procedures import evaluate
        body = "s = {c for c in text}; d = dict.fromkeys if 0 else {c: 1 for c in s}"
        body += "\\nfor i in range(40):\\n    d[c, i] = d[i / 7] = d[None if i else text] = 2 ** i"
        body += "\\nreturn [list(s), list(d), db.random.random(), str(s and [*s])]"
        called = evaluate(body, text="the quick brown fox")
        print(called.returned, called.steps)
    """
    root = str(__file__).rpartition("/tests/")[0]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", dedent(script), root],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    assert "brown" not in outputs.pop()
