"""Random procedures return what Python returns: its functions, methods, sets and operators."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from tests.support.procedures import call, module_of
from tests.support.seeds import seeds

_DEPTH = 3
_STATEMENTS = 6
_LONG, _LARGE = 4_000, 1 << 53
"""Larger texts and numbers meet the limits of procedures."""


# A key named `more` or `items` in `d.update(...)` is a TypeError here, unlike in Python: logs were
# executed so.
RULES: dict[str, list[str]] = {
    "int": [
        "len(<list>)", "len(<text>)", "len(<dict>)", "len(<set>)", "sum(<list>)",
        "sum(<list>, <int>)", "max(<list>)", "min(<list>, default=<int>)", "max(<int>, <int>)",
        "min(<list>, key=lambda x: -x)", "abs(<int>)", "(<int> + <int>)", "(<int> - <int>)",
        "(<int> * <int>)", "(<int> // <int>)", "(<int> % <int>)", "(<int> & <int>)",
        "(<int> | <int>)", "(<int> ^ <int>)", "(-<int>)", "(<int> << 2)", "(<int> >> 1)",
        "(<int> ** 2)", "<list>.count(<int>)", "<list>.index(<int>)", "<text>.count(<text>)",
        "<text>.find(<text>)", "<text>.rfind(<text>)", "<text>.index(<text>)", "int(str(<int>))",
        "int('<digit>1', 16)", "(<int>).bit_length()", "round(<float>)", "round(<int>, -1)",
        "ord(chr(97 + <int> % 26))", "divmod(<int>, <int>)[1]", "<dict>.get(<text>, <int>)",
        "<list>[<int>]", "(<int> if <bool> else <int>)", "next(iter(<list>), <int>)",
        "tuple(<list>).count(<int>)", "int(<float>)", "<dict>[<text>]", "int(<bool>)",
        "(1, 2, 2).index(<int>)", "math.floor(<float>)", "math.isqrt(abs(<int>))",
        "math.gcd(<int>, 12)",
    ],
    "float": ["<digit>.5", "(<float> + <int>)", "(<int> / <int>)", "float(<int>)", "abs(<float>)",
              "round(<float>, 1)", "float('<digit>.25')", "(<float> * <float>)"],
    "bool": [
        "(<int> < <int>)", "(<int> <= <int> < <int>)", "(<text> in <text>)", "(<int> in <set>)",
        "(<int> not in <list>)", "(<text> in <dict>)", "<text>.isdigit()", "<text>.isalpha()",
        "<text>.isupper()", "<text>.islower()", "<text>.isspace()", "<text>.isascii()",
        "<text>.isalnum()", "<text>.isdecimal()", "<text>.startswith(<text>)",
        "<text>.endswith(<text>)", "all(x > 0 for x in <list>)", "any(<list>)", "all(<list>)",
        "<set>.issubset(<set>)", "<set>.issuperset(<list>)", "<set>.isdisjoint(<set>)",
        "(<set> == <set>)", "isinstance(<int>, (int, str))", "isinstance(<text>, list)",
        "bool(<list>)", "(not <bool>)", "(<bool> and <bool>)", "(<bool> or <bool>)",
        "(<list> == <list>)", "(<text> < <text>)", "(<float>).is_integer()", "(<dict> != <dict>)",
    ],
    "text": [
        "<text>.upper()", "<text>.lower()", "<text>.title()", "<text>.capitalize()",
        "<text>.casefold()", "<text>.strip()", "<text>.lstrip('a')", "<text>.rstrip()",
        "<text>.replace(<text>, <text>)", "<text>.replace('a', 'bb', 1)", "<text>.join(<texts>)",
        "<text>.center(9)", "<text>.ljust(7, '.')", "<text>.rjust(7)", "<text>.zfill(6)",
        "<text>.removeprefix(<text>)", "<text>.removesuffix('b')", "<text>.partition(' ')[0]",
        "<text>.rpartition(',')[2]", "<text>[<int>:<int>]", "(<text> + <text>)", "(<text> * 2)",
        "str(<int>)", "str(<list>)", "str(<bool>)", "repr(<text>)", "repr(<dict>)",
        "f'{n:>5}|{t!r}|{l}'", "chr(97 + <int> % 26)", "max(<texts>)", "str(<float>)",
        "(<text> or 'none')", "'%s'.replace('%s', <text>)",
    ],
    "list": [
        "sorted(<set>)", "sorted(<list>, reverse=True)", "sorted(<list>, key=lambda x: x % 3)",
        "list(range(<digit>))", "list(range(<int>, <int>, 3))", "[x * 2 for x in <list> if x > 1]",
        "list(map(lambda x: x + 1, <list>))", "list(filter(lambda x: x % 2, <list>))",
        "list(filter(None, <list>))", "list(reversed(<list>))", "(<list> + <list>)",
        "<list>[<int>:]", "<list>[::-1]", "list(<dict>.values())", "(<list> * 2)",
        "[n * x for n, x in enumerate(<list>, 1)]", "[a - b for a, b in zip(<list>, <list>)]",
        "sorted({x % 4 for x in <list>})", "list(tuple(<list>))", "<list>.copy()",
        "list(divmod(<int>, <int>))", "[len(t) for t in <texts>]",
        "[v for k, v in sorted(<dict>.items())]", "[*<list>, <int>]",
    ],
    "texts": [
        "<text>.split()", "<text>.split(',')", "<text>.rsplit(',', 1)", "<text>.splitlines()",
        "sorted(<dict>)", "list(<dict>.keys())", "list(<text>)", "[str(x) for x in <list>]",
        "sorted(<texts>, key=len)",
    ],
    "set": [
        "set(<list>)", "<set>.union(<set>)", "<set>.intersection(<list>)", "<set>.copy()",
        "<set>.difference(<set>)", "<set>.symmetric_difference(<set>)", "(<set> | <set>)",
        "(<set> & <set>)", "(<set> - <set>)", "(<set> ^ <set>)", "{<int>, <int>}",
    ],
    "dict": [
        "dict(zip(<texts>, <list>))", "{t: len(t) for t in <texts>}", "<dict>.copy()",
        "dict(<dict>, more=<int>)", "{**<dict>, 'x': <int>}", "dict([('p', <int>)])",
        "(<dict> | <dict>)",
    ],
    "do": [
        "l.append(<int>)", "l.extend(<list>)", "l.insert(<int>, <int>)", "l.pop()", "l.pop(<int>)",
        "l.remove(<int>)", "l.reverse()", "l.sort()", "l.sort(key=lambda x: -x, reverse=<bool>)",
        "l.clear()", "l[<int>] = <int>", "l += <list>", "del l[<int>]", "d.update(<dict>)",
        "d.update(z=<int>)", "d.pop(<text>, None)", "d.setdefault(<text>, <int>)", "d.clear()",
        "d[<text>] = <int>", "s.add(<int>)", "s.discard(<int>)", "s.remove(<int>)",
        "s.update(<list>)", "s.clear()", "n += <int>", "n *= <int>", "t += <text>", "s |= <set>",
        "n = sum(x for x in <list>)", "l = <list>", "t = <text>", "s = <set>", "d = <dict>",
    ],
}  # fmt: skip
LEAVES: dict[str, list[str]] = {
    "int": ["n", "<digit>", "(-<digit>)", "17"], "float": ["<digit>.5", "0.25"],
    "bool": ["True", "False", "(n > 2)"], "text": ["t", "'a b'", "'1,2'", "'Ab'", "''", "'é\\n'"],
    "list": ["l", "[1, 2, 2]", "[]"], "texts": ["['b', 'a', '']", "t.split()"],
    "set": ["s", "{1, 2}", "set()"], "dict": ["d", "{'a': 1, 'b': 2}", "{}"],
}  # fmt: skip
BEGINNING = """\
import math

def f(db):
    n, t, l, s, d = 3, 'b,a A', [3, 1, 2], {1, 5}, {'b': 2, 'a': 1}
"""
CATCHING = """\
    try:
        {}
    except (ValueError, LookupError, ArithmeticError):
        n += 1
"""
RETURNED = "    return [n, t, l, sorted(s), [[k, d[k]] for k in sorted(d)]]\n"


_KIND = re.compile("<(int|float|bool|texts?|list|set|dict|digit)>")


def drawn(dice: random.Random, rule: str, depth: int = 0) -> str:
    """Text of a kind; the deeper, the simpler."""
    if rule == "digit":
        return str(dice.randrange(10))
    text = dice.choice(RULES[rule] if depth < _DEPTH else LEAVES[rule])
    return _KIND.sub(lambda found: drawn(dice, found[1], depth + 1), text)


def written(dice: random.Random) -> str:
    """A procedure."""
    text = BEGINNING
    for _ in range(_STATEMENTS):
        text += CATCHING.format(drawn(dice, "do"))
    return f"{text}    n = {drawn(dice, 'int', 1)}\n    t = {drawn(dice, 'text', 1)}\n{RETURNED}"


def python(text: str) -> Any:
    """What Python returns; None if it raises."""
    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102 - it was made here
    try:
        return json.loads(json.dumps(names["f"](None)))
    except (ValueError, LookupError, ArithmeticError):
        return None


@pytest.mark.parametrize("seed", range(seeds(100, 20)))
def test_a_procedure_returns_what_python_returns(seed: int) -> None:
    dice = random.Random(f"procedures {seed}")
    whole = 0
    for _ in range(4):
        text = written(dice)
        wanted, found = python(text), call(module_of(text), "f", {})
        if wanted is None:
            assert found.code is not None, text
        elif len(str(wanted)) < _LONG and abs(wanted[0]) < _LARGE:
            assert found.code is None, (found.reason, text)
            assert json.loads(found.returned) == wanted, text
            whole += 1
    assert whole or seed
