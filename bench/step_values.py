"""Rows of `step_cases` for values: texts, lists, dicts, sets and numbers."""

from __future__ import annotations

from bench.step_model import (
    BIG,
    CALL,
    CHARACTER,
    DEEP,
    DIGIT,
    DIGITS,
    EQUAL,
    EQUAL_KEYS,
    EQUAL_SET,
    FLOATS,
    GAPS,
    ITEM,
    LATER,
    LIST,
    OBJECT,
    PAIRS,
    PRIME,
    PROBE,
    RUN,
    TEXT,
    TEXTS,
    UNICODE,
    WIDE,
    Case,
    E,
    L,
    T,
)

__all__ = ["VALUE_CASES"]


def _texts() -> list[Case]:
    short = "t = 'a' * 2400\np = 'a' * 600 + 'b' + 'a' * 600"
    medium = "t = 'a' * 29000\np = 'a' * 49 + 'b' + 'a' * 49"
    back = f"t = 'a' * {T}\np = 'b' + 'a' * 63"
    cases = []
    for name in ("find", "index", "count", "partition", "split", "replace"):
        call = f"t.{name}(p, 'c')" if name == "replace" else f"t.{name}(p)"
        if name == "index":
            call = f"try:\n    {call}\nexcept ValueError:\n    pass"
        cases += [
            Case(f"str.{name}", short, call, 1200 * 600 * CHARACTER),
            Case(f"str.{name}", medium, call, 29_000 * 49 * CHARACTER),
            Case(f"str.{name}", TEXT, call.replace("(p", "('zz'"), T * CHARACTER),
        ]
    for name in ("rfind", "rindex", "rpartition", "rsplit"):
        call = f"t.{name}(p)"
        if name == "rindex":
            call = f"try:\n    {call}\nexcept ValueError:\n    pass"
        cases += [
            Case(f"str.{name}", back, call, T * 63 * CHARACTER / 2),
            Case(f"str.{name}", short, call, 1200 * 600 * CHARACTER),
        ]
    for name in ("split", "rsplit"):
        cases += [
            Case(f"str.{name}", TEXT, f"t.{name}('b')", T / 2 * OBJECT),
            Case(f"str.{name}", f"t = ('a' + 'b' * 70) * {T // 71}", f"t.{name}('b' * 70)",
                 T * CHARACTER + T / 71 * OBJECT),
        ]  # fmt: skip
    cases.append(Case("str.splitlines", f"t = '\\n' * {T}", "t.splitlines()", T * OBJECT / 2))
    return cases


def _characters() -> list[Case]:
    """Methods of texts that look at each character."""
    cases = []
    for name in ("lower", "upper", "title", "capitalize", "casefold", "isalnum", "isalpha",
                 "isdecimal", "isdigit", "islower", "isspace", "isupper"):  # fmt: skip
        cases += [
            Case(f"str.{name}", TEXT, f"t.{name}()", T * CHARACTER),
            Case(f"str.{name}", WIDE, f"t.{name}()", T * UNICODE / 4),
            Case(f"str.{name}", LATER, f"t.{name}()", T * UNICODE),
        ]
    for name in ("strip", "lstrip", "rstrip"):
        cases += [
            Case(f"str.{name}", TEXT, f"t.{name}('ab')", T * CHARACTER * 4),
            Case(f"str.{name}", f"{TEXT}\nc = '0123456789' * 6 + 'ab'", f"t.{name}(c)",
                 T * CHARACTER * 16),
            Case(f"str.{name}", f"{TEXT}\nc = '0123456789' * 9 + 'ab'", f"t.{name}(c)",
                 T * OBJECT),
            Case(f"str.{name}", LATER, f"t.{name}('\\U0001fadca')", T * UNICODE),
        ]  # fmt: skip
    for name in ("startswith", "endswith"):
        many = "t = 'a' * 90000\np = ('a' * 44000 + 'b' + 'a' * 44000,) * 200"
        cases += [
            Case(f"str.{name}", many, f"t.{name}(p)", 200 * 44_000 * CHARACTER / 16),
            Case(f"str.{name}", f"t = 'ab'\np = ('b',) * {L}", f"t.{name}(p)", L * ITEM),
        ]
    for name in ("removeprefix", "removesuffix"):
        cases.append(Case(f"str.{name}", f"{TEXT}\np = t[:-1]", f"t.{name}(p)", T / 10))
    cases.append(Case("str.isascii", TEXT, "t.isascii()", CALL))
    for name in ("center", "ljust", "rjust", "zfill"):
        cases.append(Case(f"str.{name}", "t = 'é'", f"t.{name}({T})", T * CHARACTER / 10))
    cases += [
        Case("str.replace", TEXT, "t.replace('', 'é')", T * CHARACTER * 2),
        Case("str.replace", TEXT, "t.replace('a', '')", T * CHARACTER),
        Case("str.join", TEXTS, "','.join(x)", L * ITEM),
        Case("str.join", TEXT, "','.join(t)", T * ITEM),
    ]
    return cases


def _lists() -> list[Case]:
    apart = "x = ['a' * 50000 + str(i) for i in range(50)]\nk = 'a' * 50000"
    cases = [
        Case("list.append", "x = []", "x.append(1)", CALL / 2),
        Case("list.extend", LIST, "y = []\ny.extend(x)", L * ITEM),
        Case("list.pop", LIST, "x.pop(0)\nx.append(1)", L * CHARACTER),
        Case("list.insert", LIST, "x.insert(0, 1)\nx.pop()", L * CHARACTER),
        Case("list.clear", LIST, "y = x[:]\ny.clear()", L * ITEM),
        Case("list.copy", LIST, "x.copy()", L * ITEM),
        Case("list.reverse", LIST, "x.reverse()", L * CHARACTER),
        Case("list.remove", LIST, "x.append(2)\nx.remove(2)", L * ITEM),
    ]
    for kind, made in (("list", "x"), ("tuple", "tuple(x)")):
        for name in ("count", "index"):
            call = f"y.{name}(2)" if name == "count" else f"y.{name}(2, 0)"
            guarded = f"try:\n    {call}\nexcept ValueError:\n    pass"
            cases += [
                Case(f"{kind}.{name}", f"{LIST}\ny = {made}", guarded, L * ITEM),
                Case(f"{kind}.{name}", f"{apart}\ny = {made}", guarded.replace("(2", "(k"),
                     50 * CALL / 10),
            ]  # fmt: skip
    shuffled = f"x = [i * 7919 % {L} for i in range({L})]"
    for entry, call in (
        ("list.sort", "x.sort()"), ("list.sort", "x.sort(reverse=True)"), ("sorted", "sorted(x)"),
    ):  # fmt: skip
        made = call if entry == "sorted" else f"x = y[:]\n{call}"
        cases.append(Case(entry, f"{shuffled}\ny = x", made, L * OBJECT * 2))
    nested = f"{DEEP}\nx = [x, y]"
    cases += [
        Case("sorted", nested, "sorted(x)", 50 * 4000 * ITEM),
        Case("list.sort", nested, "x.sort()", 50 * 4000 * ITEM),
        Case("max", nested, "max(x)", 50 * 4000 * ITEM),
        Case("min", nested, "min(x)", 50 * 4000 * ITEM),
        Case("sorted", apart, "sorted(x)", 50 * 50_000 * CHARACTER / 16),
        Case("sorted", f"x = [float(i * 7919 % {L}) for i in range({L})]", "sorted(x)",
             L * OBJECT * 2),
        Case("sorted", LIST, "sorted(x, key=lambda each: -each)", L * CALL),
    ]  # fmt: skip
    return cases


def _tables() -> list[Case]:
    """Dicts that are gone through, copied and made, with keys that are found late."""
    return [
        Case("dict.items", f"d = {{str(k): 0 for k in range({L})}}", "d.items()", L * OBJECT),
        Case("dict.keys", f"d = {{str(k): 0 for k in range({L})}}", "d.keys()", L * ITEM),
        Case("dict.values", GAPS, "d.values()", 10_000 * CHARACTER),
        Case("dict.copy", f"d = {{str(k): 0 for k in range({L})}}", "d.copy()", L * ITEM),
        Case("dict.clear", f"d = {{str(k): 0 for k in range({L})}}", "e = d.copy()\ne.clear()",
             L * ITEM),
        Case("dict.update", f"d = {{str(k): 0 for k in range({L})}}\ne = {{}}", "e.update(d)",
             L * OBJECT),
        Case("dict.update", f"{EQUAL_KEYS}\ne = {{}}", "e.update(d)", E * E / 2 * EQUAL),
        Case("dict.copy", f"{EQUAL_KEYS}\nd.pop(0)", "d.copy()", E * E / 2 * EQUAL),
        Case("For", GAPS, "for k in d:\n    break", 10_000 * CHARACTER),
        Case("For", f"{GAPS}\nx = [{{**d, '': 1}}, d][1:]\nd['y'] = 1",
             "for a, b in x:\n    break", 10_000 * CHARACTER),
        Case("Assign", f"{GAPS}\nd['y'] = 1", "a, b = d", 10_000 * CHARACTER),
        Case("Dict", f"d = {{str(k): 0 for k in range({L})}}", "e = {**d}", L * ITEM),
        Case("Dict", f"{EQUAL_KEYS}\ne = {{1.5: 0}}", "e = {**e, **d}", E * E / 2 * EQUAL),
        Case("BitOr", f"{EQUAL_KEYS}\ne = {{1.5: 0}}", "e = e | d", E * E / 2 * EQUAL),
        Case("Eq", f"{EQUAL_KEYS}\ne = {{**d}}", "e == d", E * E / 2 * EQUAL),
        Case("NotEq", f"{EQUAL_KEYS}\ne = {{**d}}", "e != d", E * E / 2 * EQUAL),
        Case("dict", f"{EQUAL_KEYS}\ne = [[k, 0] for k in d]", "dict(e)", E * E / 2 * EQUAL),
        Case("DictComp", EQUAL_KEYS, "{k: 0 for k in d}", E * E / 2 * EQUAL),
        Case("SetComp", EQUAL_KEYS, "{k for k in d}", E * E / 2 * EQUAL),
        Case("set", f"{EQUAL_KEYS}\ne = list(d)", "set(e)", E * E / 2 * EQUAL),
        Case("Set", EQUAL_KEYS, "{*d}", E * E / 2 * EQUAL),
        Case("set", f"x = list(range({E}))", "set(x)", E * OBJECT),
    ]  # fmt: skip


def _keys() -> list[Case]:
    """Single keys that are found late."""
    cases = []
    for setup, work in (
        (EQUAL_KEYS, E * EQUAL), (PAIRS, E / 2 * EQUAL * 2), (RUN, 2_600 * PROBE),
    ):  # fmt: skip
        add = "d[k] = 0\ndel d[k]" if setup != RUN else "d[k] += 1"
        cases += [
            Case("dict.get", setup, "d.get(k)", work),
            Case("dict.setdefault", setup, "d.setdefault(k, 0)", work),
            Case("dict.pop", setup, "d.pop(k, None)\nd[k] = 0", work),
            Case("In", setup, "k in d", work),
            Case("NotIn", setup, "k not in d", work),
            Case("In", setup, "k == k in d", work),
            Case("Subscript", setup, "d[k] if k in d else 0", work),
            Case("Subscript", setup, add, work),
            Case("AugAssign", f"{setup}\nd[k] = 2", "d[k] *= 1", work * 2),
            Case("AugAssign", f"{setup}\ne = [d]\nd[k] = 2", "e[0][k] += 1", work * 2),
        ]
    return cases


def _sets() -> list[Case]:
    cases = []
    sets = (
        ("add", "s.add(k)"), ("discard", "s.discard(k)\ns.add(k)"),
        ("remove", "s.remove(k)\ns.add(k)"),
    )  # fmt: skip
    for name, call in sets:
        cases.append(Case(f"OrderedSet.{name}", f"{EQUAL_SET}\ns.add(k)", call, E * EQUAL))
    for name in ("difference", "intersection", "isdisjoint", "issubset", "issuperset",
                 "symmetric_difference", "union", "update"):  # fmt: skip
        other = "set()" if name == "isdisjoint" else f"{{i * {PRIME} for i in range({E // 2})}}"
        if name == "issuperset":
            other = "list(s)"
        work = 0.0 if name == "isdisjoint" else E * E / 8 * EQUAL
        cases += [
            Case(f"OrderedSet.{name}", f"{EQUAL_SET}\no = {other}", f"s.{name}(o)", work),
            Case(f"OrderedSet.{name}", f"s, o = set(range({E})), list(range({E // 2}))",
                 f"s.{name}(o)", E / 2 * OBJECT if name != "isdisjoint" else CALL),
        ]  # fmt: skip
    cases += [
        Case("OrderedSet.clear", TEXTS, "s = set(x)\ns.clear()", L * OBJECT),
        Case("OrderedSet.copy", EQUAL_SET, "s.copy()", E * E / 2 * EQUAL),
        Case("In", EQUAL_SET, "k in s", E * EQUAL),
        Case("Eq", f"{EQUAL_SET}\no = s.copy()", "s == o", E * E / 2 * EQUAL),
        Case("Sub", f"{EQUAL_SET}\no = s.copy()", "s - o", E * E / 2 * EQUAL),
        Case("BitAnd", f"{EQUAL_SET}\no = s.copy()", "s & o", E * E / 2 * EQUAL),
        Case("BitXor", f"{EQUAL_SET}\no = s.copy()", "s ^ o", E * E / 2 * EQUAL),
        Case("Subscript", f"k = 'a' * {T}\nd = {{'b' + k[1:]: 0, k: 1}}\nk = k[1:] + 'a'",
             "d[k]", T * CHARACTER / 10),
        Case("dict.get", f"k = 'a' * {T}\nd = {{k: 1}}\nk = k[1:] + 'a'", "d.get(k)",
             T * CHARACTER / 10),
    ]  # fmt: skip
    return cases


def _numbers() -> list[Case]:
    return [
        Case("Mult", "a = 2 ** 2047 - 1", "a * a", DIGITS * DIGIT),
        Case("FloorDiv", BIG, "a // b", DIGITS * DIGIT),
        Case("FloorDiv", BIG, "a // 7", 136 * DIGIT),
        Case("AugAssign", BIG, "c = a\nc //= b", DIGITS * DIGIT),
        Case("Mod", BIG, "a % b", DIGITS * DIGIT),
        Case("Div", "a, b = 2 ** 4090 - 1, 2 ** 4000 + 1", "a / b", 300.0),
        Case("Pow", "", "3 ** 2580", DIGITS * DIGIT),
        Case("Pow", "a, b = 1, 2 ** 4000", "a ** b", 4_000 * OBJECT / 2),
        Case("Add", BIG, "a + b", 136 * DIGIT),
        Case("Sub", BIG, "a - b", 136 * DIGIT),
        Case("LShift", "a = 2 ** 2000", "a << 2000", 136 * DIGIT),
        Case("RShift", BIG, "a >> 3", 136 * DIGIT),
        Case("BitOr", BIG, "a | b", 136 * DIGIT),
        Case("BitAnd", BIG, "a & b", 136 * DIGIT),
        Case("BitXor", BIG, "a ^ b", 136 * DIGIT),
        Case("USub", BIG, "-a", 136 * DIGIT),
        Case("UAdd", BIG, "+a", 10.0),
        Case("Invert", BIG, "~a", 136 * DIGIT),
        Case("Not", LIST, "not x", 10.0),
        Case("divmod", BIG, "divmod(a, b)", DIGITS * DIGIT),
        Case("abs", BIG, "abs(-a)", 136 * DIGIT),
        Case("round", "a = 1.1e-300", "round(a, 320)", 4_000.0),
        Case("round", "a = 1.7976931348623157e308", "round(a, 5)", 2_000.0),
        Case("round", BIG, "round(a, -400)", DIGITS * DIGIT),
        Case("int", "t = '9' * 1000", "int(t)", 4_000.0),
        Case("int", "t = '2' * 1000", "int(t, 3)", 10_000.0),
        Case("int", "a = 1e308", "int(a)", CALL),
        Case("float", "t = '0.' + '5' * 998", "float(t)", 4_000.0),
        Case("float", "t = '4.9' + '4' * 900 + 'e-324'", "float(t)", 20_000.0),
    ]  # fmt: skip


def _shown() -> list[Case]:
    """Numbers as texts, and functions of `math`."""
    cases = [
        Case("str", "a = 2 ** 4095", "str(a)", DIGITS * DIGIT),
        Case("repr", "a = 2 ** 4095", "repr(a)", DIGITS * DIGIT),
        Case("str", "x = [2 ** 4095] * 1000", "str(x)", 1000 * DIGITS * DIGIT),
        Case("str", FLOATS, "str(x)", L * 1_000.0),
        Case("repr", LATER, "repr(t)", T * UNICODE),
        Case("repr", TEXT, "repr(t)", T * CHARACTER),
        Case("int.bit_length", BIG, "a.bit_length()", CALL / 4),
        Case("float.is_integer", "a = 1.5", "a.is_integer()", CALL / 4),
        Case("chr", "", "chr(97)", CALL / 4),
        Case("ord", "", "ord('a')", CALL / 4),
        Case("bool", LIST, "bool(x)", CALL / 4),
        Case("FormattedValue", "a = 5e-324", "f'{a:.999f}'", 20_000.0),
        Case("FormattedValue", "a = 1.7976931348623157e308", "f'{a:.999e}'", 10_000.0),
        Case("FormattedValue", "a = 2 ** 4095", "f'{a:,}'", DIGITS * DIGIT),
        Case("FormattedValue", "a = 2 ** 4095", "f'{a!r:>9}'", DIGITS * DIGIT),
        Case("FormattedValue", "a = 'a'", "f'{a:>1000}'", 100 * CHARACTER),
        Case("JoinedStr", TEXT, "f'{t}{t}'", 2 * T * CHARACTER / 10),
    ]  # fmt: skip
    cases += [
        Case(f"math.{name}", "a = 1.7e308", f"math.{name}(a)", CALL)
        for name in ("ceil", "floor", "trunc")
    ]
    for name in ("copysign", "fabs", "isfinite", "isinf", "isnan", "sqrt"):
        second = ", 2.0" if name == "copysign" else ""
        cases.append(Case(f"math.{name}", "a = 1.7e308", f"math.{name}(a{second})", CALL / 2))
    cases += [
        Case("math.gcd", "a, b = 3 ** 2580, 2 ** 4090 - 1", "math.gcd(a, b)", 30_000.0),
        Case("math.gcd", LIST, "math.gcd(*x)", L * OBJECT),
        Case("math.isqrt", BIG, "math.isqrt(a)", DIGITS * DIGIT),
    ]
    return cases


VALUE_CASES = [
    *_texts(), *_characters(), *_lists(), *_tables(), *_keys(), *_sets(), *_numbers(), *_shown()
]  # fmt: skip
"""All rows."""
