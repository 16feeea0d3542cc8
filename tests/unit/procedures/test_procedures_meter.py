"""What is quick in a call meters as the plainest form does: at every limit, the same end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamydb.procedures.core import Called, run
from streamydb.procedures.modules import Module, compile_module
from streamydb.procedures.view import Stamp
from streamydb.records import canonical, decode_value
from tests.support.exact_meter import exact
from tests.support.procedures import Host, module_of
from tests.support.seeds import seeds
from tests.unit.procedures.test_procedures_random import CATCHING, RETURNED, RULES, drawn

_HEAD = """\
import math
from streamydb.procedures import Abort

PAIR = (1, "a") + ("b", -2)
WORDS = {words}

def helped(db, key, more=PAIR, *rest):
    return [db.get(key, more[0]), *rest]

def told(db, key, value, *rest):
    db.put(f"{{key}}", f"{{key}}/{{value}}:{{rest}}")
    four = f"{{key}}{{key}}{{key}}{{key}}"
    return [f"{{db.get(key)}}{{key}}.{{value}}", f"{{value}}{{key}}", f"{{value}}", four]

def f(db, **args):
    n, t, l, s, d = 3, 'b,a A', [3, 1, 2], {{1, 5}}, {{'b': 2, 'a': 1}}
"""
DB = [
    "db.put(<key>, <int>)", "db.put(<key>, <dict>)", "db.put(<key>, {'x': <list>, 'y': <text>})",
    "db.put(<key>, [<int>, <float>])", "db.put(<key>, <set>)", "db.put(<key>, <text> * 300)",
    "db.put(<key>, None)", "db.put(n, 1)", "db.put(<key>, 2 ** 63)", "db.put(<key>, {2 ** 63: 1})",
    "db.put(<key>, {1: 2 ** 63})", "db.put(<key>, (1, <bool>))", "db.put(<key>, <int>, ttl_ms=5)",
    "n = db.get(<key>, <int>)", "d = db.get(<key>)", "l = helped(db, <key>)", "n = db.get(l)",
    "n = db.add(<key>, <int>)", "n = db.add(<key>)", "db.add(<key>, 2 ** 62)", "db.add(<key>, 0.5)",
    "db.add(<key>, <int>, min=0)", "db.add(<key>, True)", "db.add(<key>, 2 ** 63)",
    "db.append(<key>, <int>)", "db.delete(<key>)", "n = db.next_id(<key>)", "db.exists(<key>)",
    "l = told(db, <key>, <int>)", "l = told(db, <key>, <text> * 300)", "l = told(db, n, <bool>)",
    "l = told(db, <key>, 2 ** 63)", "l = told(db, <key>, <text>, 1.5)", 't = f"{n}{db.get(<key>)}"',
    "for k, v in ((<key>, <int>), ('b', <text>)): l = [f'{k}={v}', f'{k}{v}{k}', db.get(k)]",
    "l = [f'{k}/{n}' for k in <list> for n in f'{k}']", "l = (lambda k, v: f'{k}{v}')(1, <list>)",
    "l = [f'{y}{n}' for n in [1]]", "d = {'x': 1}.get('x')", "d = {'x': 1}.get('y', <int>)",
    "t = f'{n}/{u}'", "t = f'{u}{n}{t}'", "u = <int>", "u = <text>", "del u", "u = n == u",
    "u = n < u", "n += u", "n -= u", "l += u", "t = f'{2 ** 62}' + f'{n}'",
    "n = 2 ** (<digit> * 10 + 5)",
    "for u in (n, 2 ** 63, 10 ** 17, -5): l = [f'{u}', f'{u}/{u}', f'{u}{n}', u < n, u != n]",
    "n = db.max(<key>, <int>)", "l = helped(db, <key>, PAIR, *l)", "raise Abort(<text>)",
]  # fmt: skip
VALUES: list[Any] = [
    5,
    0,
    -7,
    2**63 - 1,
    1.5,
    "text",
    [1, 2],
    {"b": 1, "a": [True, None]},
    True,
    "é" * 400,
]
WRONG = "except (ValueError, LookupError, ArithmeticError, TypeError)"


def procedure(dice: random.Random) -> bytes:
    """A module whose procedure ``f`` does this and that."""
    text = _HEAD.format(words=dice.choice(["('x', 'yy')", "['x', 'yy']", "{'x': 1}"]))
    for _ in range(dice.randint(1, 5)):
        rule = dice.choice(DB) if dice.random() < 0.7 else dice.choice(RULES["do"])
        key = dice.choice(["'a'", "'b'", "'c'", "'r'", "'$flows/m'"])
        text += CATCHING.format(_filled(dice, rule.replace("<key>", key))).replace(
            "except (ValueError, LookupError, ArithmeticError)", WRONG
        )
    return (text + RETURNED.replace("[k, d[k]] for k in sorted(d)", "str(d)")).encode()


def _filled(dice: random.Random, rule: str) -> str:
    RULES["filled"] = [rule]
    return drawn(dice, "filled")


class AtHand:
    """The values of a host's keys, as the engine has them at hand."""

    def __init__(self, host: Host) -> None:
        names = [key for key in ("a", "b", "c", "r") if host.may(key, write=False)]
        self.values = {key: host.look(key)[0] for key in names}
        self.writable = [key for key in names if host.may(key, write=True)]


def ended(module: Module, host: Host, steps: int, *, at_hand: bool = False) -> tuple[Any, ...]:
    """All that a call tells of itself; ``at_hand``: its keys and arguments are."""
    args = canonical({"z": 1, "a": [1.0, {"b": 2}]})
    given: dict[str, Any] = {"known": AtHand(host), "taken": decode_value(args)} if at_hand else {}
    called: Called = run(module, "f", args, host, Stamp(7, 9, "t"), steps=steps, **given)
    writes = [(key, value, getattr(value, "expires_ms", 0)) for key, value in called.writes.items()]
    return called.code, called.reason, called.returned, writes, called.steps


@pytest.mark.parametrize("seed", range(seeds(60, 20)))
def test_at_every_limit_a_call_ends_as_it_does_step_by_step(seed: int) -> None:
    dice = random.Random(f"meter {seed}")
    text = procedure(dice)
    state = {key: dice.choice(VALUES) for key in "abr" if dice.random() < 0.7}
    host = Host(state, ["a", "b", "$flows/m"], ["r"])
    quick = compile_module("m", text)
    with exact(text) as plain:
        whole = ended(plain, host, 100_000)
        total = whole[-1]
        limits = range(total + 2) if total < 300 else sorted(dice.sample(range(total + 2), 300))
        expected = [ended(plain, host, limit) for limit in limits]
    for at_hand in (False, True):
        assert ended(quick, host, 100_000, at_hand=at_hand) == whole
        assert [ended(quick, host, limit, at_hand=at_hand) for limit in limits] == expected
    assert expected[0][0] == "budget-exceeded"


@pytest.mark.parametrize("length", [1, 29, 30, 31, 60, 61, 62, 63, 253, 254, 255, 800])
def test_values_of_all_lengths_cost_as_step_by_step(length: int) -> None:
    body = "    return [len(db.get('a')), db.put('b', db.get('a') * 2), db.add('r'), f'{7} {-1}']\n"
    text = (_HEAD.format(words="'w'") + body.replace("'r'", "'c'")).encode()
    host = Host({"a": "x" * length, "c": 10**18}, ["a", "b", "c"])
    quick = compile_module("m", text)
    with exact(text) as plain:
        whole = ended(plain, host, 1_000)
        expected = [ended(plain, host, limit) for limit in range(whole[-1] + 2)]
    assert whole[0] is None
    assert [ended(quick, host, limit) for limit in range(whole[-1] + 2)] == expected


@pytest.mark.parametrize(
    "line",
    [
        """return f"{n}{db.get('a')}{db.add('c')}" """,
        """return f"{helped}{missing}" """,
        """return f"{n}{db.get('a', missing)}" """,
        """return f"{n}/{t}:{n}" """,
        """return (lambda key: f"{key}{key}{key}")(n)""",
        """return told(db, 'c', n)""",
        """return [f"{k}{v}" for k in t for v in f"{k}{v}"]""",
        """for k in t: db.put('c', f"{k}{k}{n}")""",
        """return (lambda k, v=lambda k: f"{n}{k}": f"{k}{v(k)}")(t)""",
    ],
)
def test_texts_with_values_cost_as_step_by_step(line: str) -> None:
    text = (_HEAD.format(words="'w'") + f"    {line}\n").encode()
    host = Host({"a": 5, "c": 1}, ["a", "b", "c"])
    quick = compile_module("m", text)
    with exact(text) as plain:
        total = ended(plain, host, 1_000)[-1]
        expected = [ended(plain, host, limit) for limit in (*range(total + 2), 1_000)]
    assert [ended(quick, host, limit) for limit in (*range(total + 2), 1_000)] == expected


def test_a_module_that_keeps_nothing_is_loaded_once_and_charged_each_time() -> None:
    """Work is counted, not time: how often the module's code is executed."""
    for words, loads in (("('x', 'yy')", 1), ("['x']", 3)):
        text = _HEAD.format(words=words) + "    return WORDS[0]\n"
        module = module_of(text, f"m{loads}")
        seen: list[Module] = []
        load = Module.load

        def counted(self: Module, *args: Any, seen: Any = seen, load: Any = load) -> None:
            seen.append(self)
            load(self, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Module, "load", counted)
            steps = {ended(module, Host({}, []), 1_000)[-1] for _ in range(3)}
        assert len(seen) == loads
        assert len(steps) == 1


@pytest.mark.parametrize(
    ("line", "lasting"),
    [
        ("X = 1", True), ("X = (1, ('a', None), -2)", True), ("X = 'a' * 3", True),
        ("X = lambda n: [n]", True), ("def g(n=(1, 2)): return n", True),
        ("X = []", False), ("X = ([],)", False), ("X = {1}", False), ("X = {}", False),
        ("X = lambda n=[]: n", False), ("def g(n={}): return n", False),
        ("def g(*, n=iter((1, 2))): return n", False), ("def g(n=max(1, 2)): return n", False),
        ("@procedure(keys=lambda args, seen=[]: seen)\ndef g(db): return 1", False),
    ],
)  # fmt: skip
def test_what_a_call_can_change_is_made_anew_for_each(line: str, *, lasting: bool) -> None:
    text = f"from streamydb.procedures import procedure\n\n{line}\n\ndef f(db, **args):\n    pass\n"
    module = module_of(text)
    module.workspaces.taken(10**6)
    free = module.workspaces._free
    ended(module, Host({}, []), 1_000)
    assert len(free) == lasting
