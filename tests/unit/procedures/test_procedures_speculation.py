"""Calls of the speculative form end as those of the other form, or are given up."""

from __future__ import annotations

import random
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from textwrap import indent
from typing import Any

import pytest

from streamydb.limits import INTEGER_MAX, INTEGER_MIN, PROCEDURE_STEPS_MAX, VALUE_BYTES_MAX
from streamydb.procedures.core import Called, Guesser, run
from streamydb.procedures.modules import Module
from streamydb.records import canonical
from tests.support.procedures import Host, module_of
from tests.support.seeds import seeds

PLACE = 42, 1_700_000_000_000, "txn-1"
KEYS = "a", "b", "c", "d"


class _Known:
    """What a host has, at hand."""

    def __init__(self, host: Host) -> None:
        self.values: dict[str, bytes | None] = {key: host.state.get(key) for key in KEYS}
        self.writable = frozenset(KEYS)


def guessed(
    module: Module, args: Mapping[str, Any], state: Mapping[str, Any]
) -> tuple[Called | None, int]:
    """What the speculative form of `f` ends with, and the steps that it charged."""
    assert module.speculative is not None
    host, data = Host(state, KEYS), canonical(dict(args))
    guesser = Guesser(module.speculative, "f")
    called = guesser.call(deepcopy(dict(args)), len(data), host, PLACE, _Known(host))
    assert (guesser.tried, guesser.given_up) == (1, int(called is None))
    return called, PROCEDURE_STEPS_MAX - guesser.left


def metered(module: Module, args: Mapping[str, Any], state: Mapping[str, Any]) -> Called:
    """What the other form ends with."""
    return run(module, "f", canonical(dict(args)), Host(state, KEYS), PLACE)


def procedure(body: str, args: str = "x=0, y=0") -> Module:
    heading = "from streamydb.procedures import Abort\nLIMIT = 7\nFORM = '%d'\n"
    helper = "def _twice(n):\n    return n + n\n"
    return module_of(f"{heading}{helper}def f(db, {args}):\n{indent(body, '    ')}\n")


def compared(module: Module, args: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Compare the two forms; return True if the speculative one did not give up."""
    called, steps = guessed(module, args, state)
    if called is None:
        return False
    expected = metered(module, args, state)
    assert called == replace(expected, steps=0)
    assert list(called.writes) == list(expected.writes)
    assert steps >= expected.steps
    return True


FIELDS = ", ".join(f"'f{i}': x" for i in range(20))
USUAL = {
    "put(get - y)": "db.put('a', db.get('a') - y)\nreturn db.get('a')",
    "two gets, a comparison, two puts": (
        "left, right = db.get('a', 0), db.get('z' if x < 0 else 'b', 0)\n"
        "if left < x:\n    raise Abort(f'{left} is less than {x}')\n"
        "db.put('a', left - x)\ndb.put('b', right + x)\nreturn [left, right]"
    ),
    "each operator": "return [x + 1, x - y, x * y, x // 3, x % 3, -x, (x + 1) * (y - 2) // 1]",
    "a constant of the module": "return x * LIMIT + y",
    "a loop": "n = 0\nfor i in range(y):\n    n += i * x\nreturn n",
    "unpacked": "n = 0\nfor i, j in [[1, x], [y, 2]]:\n    n += i - j\nreturn {'n': n}",
    "while": "n = 10\nwhile n > x:\n    n -= 1\n    if n == 4:\n        continue\nreturn n",
    "an item": "d = {'n': x, 'l': [y]}\nd['n'] += 5\nd['m'] = y\ndb.put('c', d)\nreturn d['l'][0]",
    "an item by place": "l = [x, y]\nl[0] = y\nl[y - 1] = x\nreturn l",
    "appended": "l = []\nfor i in range(3):\n    l.append([i, x])\ndb.put('d', l)\nreturn l",
    "a stored list": "db.put('c', [])\ndb.append('c', x)\ndb.append('c', y)\nreturn db.get('c')",
    "another list": "db.append('b', x)",
    "texts": "k = f'k/{x}/{y}'\ndb.put('a', k)\nreturn [f'{x}', f'{x}|{y - 1}', f'{k}{x}', k + k]",
    "formats": "return [f'{x:>5}', f'{y!r}', f'{x + y}{x}', str(x)]",
    "adds": "return [db.add('a', x), db.add('b', -1), db.get('a')]",
    "adds within": "return db.add('a', x, max=1_099_511_627_826)",
    "deleted": "db.delete('a')\nreturn [db.exists('a'), db.get('a', 'none')]",
    "the place": "return [db.id, db.now - 1, db.seq * 2]",
    "a comprehension": "return [n * 2 - x for n in range(y) if n != x]",
    "functions": "return [_twice(x), sum([x, y]), max(x, y), min([x]), len([x]), abs(x), int('7')]",
    "kinds": "return [isinstance(x, int), isinstance(x, (str, list)), list(enumerate('ab'))]",
    "a chain": "return [0 <= x < y, x == y, x != 3, not x, x is None, x in [1, y], x or y]",
    "shadowed": "LIMIT = 'text'\nreturn LIMIT + 'er'",
    "texts in a comprehension": "return len([f'{x}:{n}' for n in range(50)])",
    "many texts": "l = []\nfor i in range(40):\n    l.append(f'{i}-{x}-{y}')\nreturn l",
    "a text in a loop's head": "n = 0\nfor c in f'{x}{y}':\n    n += 1\nreturn n",
    "many fields": f"d = {{{FIELDS}}}\ndb.put('a', d)\nreturn d",
    "evaluated in order": "return (db.get('a') - 1) * db.add('a', 5) + db.add('a', 1)",
    "an item of a dict or another": (
        "d = {'n': x, 'o': None}\nreturn [d.get('n'), d.get('m'), d.get('m', y), d.get('o', y)]"
    ),
    "an item at the first place": "l = [x, y]\nl[0] = y\nreturn l",
    "a method with two arguments": "return f'{x},{y},{x}'.split(',', 1)",
    "a stored list of texts": "db.put('c', [])\ndb.append('c', f'{x}')\nreturn db.get('c')",
    "nothing": "pass",
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_usual_calls_end_as_in_the_other_form(name: str) -> None:
    module = procedure(USUAL[name])
    for x, y in ((0, 1), (3, 5), (-4, 2), (1 << 40, 3), (100, 0)):
        state = {"a": 50, "b": 20} if name != "another list" else {"b": [1, 2]}
        assert compared(module, {"x": x, "y": y}, state) or name in ERRORS


ERRORS = {"an item by place", "two gets, a comparison, two puts"}
"""Of these, some arguments lead to errors of the language, or to keys that are not declared."""


def test_an_abort_is_an_abort_with_its_reason() -> None:
    called, _ = guessed(
        procedure("db.put('b', 1)\nraise Abort(f'{x} of {y}')"), {"x": 1, "y": 2}, {}
    )
    assert called is not None
    assert (called.code, called.reason, called.writes) == ("procedure-aborted", "1 of 2", {})


MOST, LEAST = INTEGER_MAX, INTEGER_MIN
UNUSUAL: dict[str, tuple[str, Any, Any, Any]] = {
    "a sum is too long": ("db.put('b', [x + y])", MOST, 1, None),
    "a difference is too long": ("db.put('b', [x - y])", LEAST, 1, None),
    "a product is too long": ("db.put('b', [x * y])", MOST, 2, None),
    "a quotient is too long": ("db.put('b', [x // y])", LEAST, -1, None),
    "a negative is too long": ("db.put('b', [-x])", LEAST, 0, None),
    "an absolute value is too long": ("db.put('b', [abs(x)])", LEAST, 0, None),
    "a total is too long": ("db.put('b', [sum([x, y])])", MOST, 1, None),
    "a read number is too long": ("db.put('b', [int(x)])", "9223372036854775808", 0, None),
    "a grown item is too long": ("d = {'n': x}\nd['n'] += y\ndb.put('b', d)", MOST, 1, None),
    "a grown name is too long": ("x += y\ndb.put('b', [x])", MOST, 1, None),
    "unknown sides are too long": ("db.put('b', [x[0] + y[0]])", [MOST], [1], None),
    "a sum in a comprehension": ("db.put('b', [n + x for n in [y]])", MOST, 1, None),
    "a float is read": ("db.put('b', [db.get('a')])", 0, 0, 1.5),
    "a float is within": ("return db.get('a', 1)['n'][0]", 0, 0, {"n": [0.5]}),
    "a float is added to": ("return db.add('a', x)", 1, 0, 1.5),
    "a float is added to, with a bound": ("return db.add('a', x, max=9)", 1, 0, 1.5),
    "a text is computed with": ("return x - y", 5, "text", None),
    "a text is repeated": ("return x * y", 5, "text", None),
    "a truth value is computed with": ("return x - y", 5, True, None),
    "a constant text is a form": ("return FORM % x", 5, 0, None),
    "a name changes its kind": ("n = 0\nn = db.get('a')\nreturn n", 0, 0, "text"),
    "an unpacked name does": ("n, m = db.get('a')\nreturn n - m", 0, 0, ["t", 1]),
    "a loop's name does": ("for n in x:\n    y = n - 1 if y else 2", ["t"], 0, None),
    "an argument does": ("return x - 1 if y else x", "t", 0, None),
    "a dict has a number as key": ("d = {}\nd[x] = 1\ndb.put('b', d)", 1, 0, None),
    "a dict has a place as key": ("d = {}\nd[0] = 1\nreturn d", 0, 0, None),
    "an appended set": ("x.append(1)", "text", 0, None),
    "a value is nested too deeply": (
        "l = [1]\nfor i in range(70):\n    l = [l]\ndb.put('b', l)", 0, 0, None),
    "a value is too long": (f"db.put('b', 'a' * {VALUE_BYTES_MAX})", 0, 0, None),
    "a grown list is too long": ("db.append('a', x)", 1, 0, ["a" * (VALUE_BYTES_MAX - 5)]),
    "a list that is none": ("db.append('a', x)", 1, 0, {"a": 1}),
    "no value": ("db.put('b', db.get('c'))", 0, 0, None),
    "a key that is not declared is read": ("return db.get('z')", 0, 0, None),
    "a key that is not declared is written": ("db.put('z', 1)", 0, 0, None),
    "a key that is no text": ("return db.get(x)", 1, 0, None),
    "a put under no text": ("db.put(x, 1)", 1, 0, None),
    "a lone surrogate": ("db.put('b', '\\ud800')", 0, 0, None),
    "a division by zero": ("return x // y", 1, 0, None),
    "a name without a value": ("if x:\n    n = 1\nreturn n - 1", 0, 0, None),
    "an exception": ("raise ValueError", 0, 0, None),
    "it runs for ever": ("while True:\n    pass", 0, 0, None),
    "a loop grows its list": ("l = [1]\nfor n in l:\n    l.append(n)", 0, 0, None),
    "it calls itself": ("return f(db)", 0, 0, None),
    "the steps run out before an abort": (
        "for i in range(150):\n    db.get('a')\nraise Abort('late')", 0, 0, "a" * 50_000),
    "a range is put": ("db.put('b', range(3))", 0, 0, None),
    "arguments are missing": ("return y", None, 0, None),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_calls_are_given_up(name: str) -> None:
    body, x, y, before = UNUSUAL[name]
    args = {"x": x, "y": y} if x is not None else {"z": y}
    state = {} if before is None else {"a": before}
    called, _ = guessed(procedure(body), args, state)
    assert called is None
    metered(procedure(body), args, state)  # whatever that is: it ends


WITHOUT = {
    "floats": "return 0.5",
    "long numbers": "return 9223372036854775808",
    "quotients": "return x / y",
    "powers": "return x ** y",
    "shifts": "return x << y",
    "bits": "return x | y",
    "functions that give floats": "return float(x)",
    "functions that give dicts": "return dict([(x, y)])",
    "functions by other names": "g = sum\nreturn g([x])",
    "functions as arguments": "return max([x], key=abs)",
    "counting from a number": "return list(enumerate([x], y))",
    "counting from a number by name": "return list(enumerate([x], start=y))",
    "keys that are no texts": "return {x: y}",
    "dicts in dicts": "return {**x}",
    "lists in lists": "return [*x]",
    "named arguments of a dict": "return _twice(**x)",
    "sets": "return len({x})",
    "comprehended dicts": "return {n: n for n in 'ab'}",
    "deleted items": "del x['a']",
    "methods that change dicts": "x.setdefault(1, 2)",
    "methods that remove": "x.pop()",
    "methods that are not called": "g = db.get\nreturn g('a')",
    "chance": "return db.random.random()",
    "scans": "return db.scan('a')",
    "caught exceptions": "try:\n    x -= 1\nexcept TypeError:\n    x = 0\nreturn x",
    "functions in functions": "def g(n):\n    return n\nreturn g(x)",
    "lambdas": "return sorted([x], key=lambda n: -n)",
    "generators": "return sum(n for n in [x])",
    "texts in a condition": "while x < len(f'{y}'):\n    x += 1",
    "changed items under any key": "d = {'a': 1}\nd[x] += 1",
    "asserts": "assert x",
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_module_with_anything_else_has_no_such_form(name: str) -> None:
    assert procedure(WITHOUT[name]).speculative is None


@pytest.mark.parametrize(
    "text",
    [
        "L = [1]\ndef f(db):\n    return 1",
        "X = 0.5\ndef f(db):\n    return 1",
        "import math\ndef f(db):\n    return 1",
        "from math import floor\ndef f(db):\n    return floor(1)",
        "def f(db, x=0.5):\n    return x",
        "F = lambda: 1\ndef f(db):\n    return F()",
    ],
)
def test_nothing_at_the_top_of_a_module_leads_to_other_values(text: str) -> None:
    assert module_of(text).speculative is None


@pytest.mark.parametrize("again", ["X =", "X: str ="])
def test_a_name_at_the_top_that_gets_another_value_is_no_integer(again: str) -> None:
    """As one it would be shown for two steps, however long it is."""
    text = f"X = 7\n{again} '{'a' * 5_000}'\ndef f(db):\n    return len(f'{{X}}')"
    assert compared(module_of(text), {}, {})


def test_annotations_and_key_functions_do_not_matter() -> None:
    text = """
        from typing import Any
        from streamydb.procedures import procedure
        PART: int = 3

        @procedure(keys=lambda args: {"keys": [f"k{args['x'] / 2}"]})
        def f(db: Any, x: int | None = 1, lines: list[float] = ()) -> dict[str, float]:
            n: int = x * PART
            return n
        """
    assert compared(module_of(text), {"x": 5}, {})


def test_a_procedure_that_is_often_given_up_is_no_longer_tried() -> None:
    module = procedure("return x - 1")
    assert module.speculative is not None
    host = Host({}, KEYS)
    guesser = Guesser(module.speculative, "f")
    for turn in range(9):
        assert guesser.pays(), turn
        assert guesser.call({"x": "text"}, 9, host, PLACE, _Known(host)) is None
    assert not guesser.pays()
    for _ in range(27):
        assert guesser.call({"x": 1}, 9, host, PLACE, _Known(host)) is not None
    assert guesser.pays()


def test_a_call_that_was_given_up_leaves_nothing_to_the_next_one() -> None:
    module = procedure("db.put('a', x)\nreturn _twice(x - y)")
    assert module.speculative is not None
    host = Host({}, KEYS)
    guesser = Guesser(module.speculative, "f")
    assert guesser.call({"x": "text"}, 9, host, PLACE, _Known(host)) is None
    called = guesser.call({"x": 3, "y": 1}, 9, host, PLACE, _Known(host))
    assert called == replace(metered(module, {"x": 3, "y": 1}, {}), steps=0)


def test_an_abort_after_the_last_step_is_given_up() -> None:
    module = procedure("db.get('a')\nraise Abort('late')")
    assert module.speculative is not None
    host = Host({"a": "a" * 5_000}, KEYS)
    guesser = Guesser(module.speculative, "f")
    size = 32 * (PROCEDURE_STEPS_MAX - 100)
    assert guesser.call({}, 2, host, PLACE, _Known(host)) is not None
    assert guesser.call({}, size, host, PLACE, _Known(host)) is None


def test_all_calls_take_one_workspace_which_is_left_at_the_end() -> None:
    module = procedure("return x")
    assert module.speculative is not None
    host = Host({}, KEYS)
    guesser = Guesser(module.speculative, "f")
    guesser.end()  # nothing has begun
    left = []
    for _ in range(2):
        for x in range(2):
            assert guesser.call({"x": x}, 9, host, PLACE, _Known(host)) is not None
        guesser.end()
        guesser.end()  # nothing is left twice
        taken = [module.speculative.workspaces.taken(PROCEDURE_STEPS_MAX) for _ in range(2)]
        assert [each.loaded for each in taken] == [True, False]
        module.speculative.workspaces.left(taken[0])
        left.append(taken[0])
    assert left[0] is left[1]


PIECES = {
    "int": ["x", "y", "n", "m", "LIMIT", "<digit>", "<int> + <int>", "(<int> - <int>)",
            "(<int> * <int>)", "(<int> // <int>)", "(<int> % <int>)", "-<int>", "len(<list>)",
            "db.get(<key>, 0)", "db.add(<key>, <int>)", "sum(<list>)", "abs(<int>)", "<list>[0]",
            "max(<int>, <int>)", "_twice(<int>)", "d['k']", "(<int> if <bool> else <int>)"],
    "plain": ["n", "x", "(n - m)", "y * 2", "(x - 1) // m"],
    "bool": ["<int> < <int>", "<int> == <int>", "(<bool> and <bool>)", "not <bool>", "n != m",
             "0 <= <int> <= x", "<int> in <list>", "t == <text>"],
    "list": ["l", "[<int>, <int>]", "[]", "[z - <int> for z in <list>]", "sorted(<list>)",
             "<list> + <list>", "l[1:]", "[z for z in <list> if z > <int>]"],
    "text": ["t", "f'{n}/{m}'", "f'k{<plain>}'", "f'{t}{x}-{n}'", "'é'", "str(<int>)",
             "t + <text>"],
    "key": ["'a'", "'b'", "'c'", "f'{t}'"],
    "value": ["<int>", "<text>", "<list>", "{'k': <int>, 'l': <list>}", "[<text>, None, True]",
              "d"],
    "do": ["n = <int>", "m = <int>", "n += <int>", "m -= <int>", "n *= <int>", "l = <list>",
           "l.append(<int>)", "t = <text>", "db.put(<key>, <value>)", "d['k'] += <int>",
           "d['k'] = <int>", "d[<text>] = <int>", "l[0] = <int>", "db.append('d', <int>)",
           "n, m = <int>, <int>", "l += <list>", "d = {'k': <int>}", "db.delete(<key>)",
           "if <bool>:\n    n -= 1\nelse:\n    l.append(m)",
           "for i in <list>:\n    n += i\n    m = i - n",
           "for i, j in [[n, m], [x, y]]:\n    l.append(i * j)\n    t = f'{i}:{j}'",
           "while n > 3:\n    n //= 2", "if <bool>:\n    raise Abort(f'{n} {t}')"],
}  # fmt: skip


def drawn(dice: random.Random, kind: str, depth: int = 0) -> str:
    """Text of a kind; the deeper, the simpler."""
    choices = PIECES[kind]
    text = dice.choice(choices if depth < 3 else choices[:1])
    for inner in ("int", "bool", "list", "text", "key", "value", "plain", "digit"):
        while f"<{inner}>" in text:
            digit = str(dice.choice([0, 1, 2, 5, 1 << 31, INTEGER_MAX]))
            part = digit if inner == "digit" else drawn(dice, inner, depth + 1)
            text = text.replace(f"<{inner}>", part, 1)
    return text


ODD = [0, 1, 2, 7, -3, 1 << 62, INTEGER_MAX, INTEGER_MIN, True, None, "a", [1, 2], {"k": 1}]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 8)))
def test_random_procedures_end_as_in_the_other_form(seed: int) -> None:
    dice = random.Random(f"speculation {seed}")
    held = 0
    for _ in range(40):
        lines = ["n, m, t, l, d = x, y, 'a', [x, 3], {'k': y}"]
        lines += [drawn(dice, "do") for _ in range(dice.randint(1, 7))]
        module = procedure("\n".join([*lines, "return [n, m, t, l, d]"]), "x, y")
        assert module.speculative is not None
        odd = dice.random() < 0.3
        args = {name: dice.choice(ODD if odd else ODD[:5]) for name in "xy"}
        state: dict[str, Any] = {"a": dice.randint(-9, 9), "b": 5, "d": [1]}
        state["c"] = dice.choice([0.5, "t", 4, [1, "x"]])
        held += compared(module, args, state)
    assert held > 5
