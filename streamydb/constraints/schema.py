"""The part of JSON Schema (2020-12) that constraints take, and the judge of values.

The part is what means the same everywhere and ends soon: no references, no regular expressions, no
formats, no content decoders; every schema and every judgement has a bound. Values are canonical:
1.0 is 1, so an integer is a number without a fraction, as JSON Schema has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streamydb.errors import ValueRejected
from streamydb.limits import CONSTRAINT_STEPS_MAX, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX
from streamydb.records.values import canonical, is_number


class DeclarationRefused(Exception):  # noqa: N818 - a verdict, not an error
    """A declaration is refused; says why."""


_At: TypeAlias = "tuple[_At, str | int] | None"
"""A place within a value: what it is in, and its name or number there; None: the value itself.

It is put into words only for a broken rule, as names may be long.
"""


class _Exhausted(Exception):  # noqa: N818 - a verdict, not an error
    """A judgement takes too many steps."""


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "integer": lambda value: type(value) is int,
    "number": is_number,
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
_COUNTS: Final[Mapping[str, type]] = {
    "minLength": str, "maxLength": str, "minItems": list, "maxItems": list,
    "minProperties": dict, "maxProperties": dict,
}  # fmt: skip
_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE: Final = ("not", "items", "contains", "additionalProperties", "propertyNames",
                  "if", "then", "else")  # fmt: skip
_ANNOTATIONS: Final = frozenset(
    {"$schema", "$comment", "title", "description", "default", "examples", "deprecated",
     "readOnly", "writeOnly"}
)  # fmt: skip


@dataclass(slots=True)
class _Meter:
    """Counts the steps of one judgement."""

    left: int = CONSTRAINT_STEPS_MAX

    def charge(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _Exhausted


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled schema."""

    root: _Node

    def fault(self, value: Any) -> str | None:
        """The first rule that a value breaks, and where; None: it keeps all."""
        try:
            fault = self.root.fault(value, None, _Meter())
        except _Exhausted:
            return "schema takes too many steps"
        return None if fault is None else f"schema {fault}"


@dataclass(frozen=True, slots=True)
class _Node:
    """One schema within a schema; ``rules`` in the order in which they are looked at."""

    rules: dict[str, Any]

    def fault(self, value: Any, at: _At, meter: _Meter) -> str | None:
        meter.charge(1)
        for rule, operand in self.rules.items():
            fault = _RULES[rule](operand, value, at, meter, self.rules)
            if fault is not None:
                return fault
        return None

    def holds(self, value: Any, meter: _Meter) -> bool:
        return self.fault(value, None, meter) is None


_FALSE: Final = _Node({"false": True})


def compile_schema(schema: Any) -> Schema:
    """Compile a schema.
    Raises DeclarationRefused: it has a rule that is not known here, or is too large.
    """
    return Schema(_compile(schema, "", iter(range(SCHEMA_NODES_MAX)), 0))


def _compile(schema: Any, at: str, budget: Iterator[int], depth: int) -> _Node:
    if next(budget, None) is None:
        raise DeclarationRefused(f"schema has more than {SCHEMA_NODES_MAX} schemas in it")
    if depth > SCHEMA_DEPTH_MAX:
        raise DeclarationRefused(f"schema is nested more than {SCHEMA_DEPTH_MAX} deep at {at}")
    if type(schema) is bool:
        return _Node({}) if schema else _FALSE
    if type(schema) is not dict:
        raise DeclarationRefused(f"schema: {at or '/'} is no schema")
    unknown = sorted(schema.keys() - _KNOWN - _ANNOTATIONS)
    if unknown:
        raise DeclarationRefused(f"schema: {at}/{unknown[0]} is not supported")
    rules: dict[str, Any] = {}
    for rule in _ORDER:
        if rule in schema:
            rules[rule] = _operand(rule, schema[rule], f"{at}/{rule}", budget, depth + 1)
    return _Node(rules)


def _operand(rule: str, given: Any, at: str, budget: Iterator[int], depth: int) -> Any:
    """The operand of a rule in the form that its judge takes."""
    if rule in _SINGLE:
        return _compile(given, at, budget, depth)
    if rule in _LISTS:
        if type(given) is not list or not given:
            raise DeclarationRefused(f"schema: {at} is a list of schemas")
        return [_compile(part, f"{at}/{i}", budget, depth) for i, part in enumerate(given)]
    if rule in ("properties", "dependentSchemas"):
        if type(given) is not dict:
            raise DeclarationRefused(f"schema: {at} is an object of schemas")
        return {k: _compile(part, f"{at}/{k}", budget, depth) for k, part in given.items()}
    fits, what = _FORMS[rule]
    if not fits(given):
        raise DeclarationRefused(f"schema: {at} is {what}")
    if rule == "type":
        return (given,) if type(given) is str else tuple(given)
    if rule == "enum":
        return [canonical(item) for item in given]
    return canonical(given) if rule == "const" else given


def _is_type(given: Any) -> bool:
    names = given if type(given) is list else [given]
    return bool(names) and all(type(name) is str and name in _TYPES for name in names)


def _is_count(given: Any) -> bool:
    return type(given) is int and given >= 0


def _is_names(given: Any) -> bool:
    return type(given) is list and all(type(name) is str for name in given)


_FORMS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "type": (_is_type, f"one or more of {', '.join(_TYPES)}"),
    "enum": (lambda given: type(given) is list and bool(given), "a list of values"),
    "const": (lambda _: True, "a value"),
    "multipleOf": (lambda given: type(given) is int and given > 0, "an integer above 0"),
    "uniqueItems": (lambda given: type(given) is bool, "true or false"),
    "required": (_is_names, "a list of names"),
    "dependentRequired": (
        lambda given: type(given) is dict and all(map(_is_names, given.values())),
        "an object of lists of names",
    ),
    **dict.fromkeys(_BOUNDS, (is_number, "a number")),
    **dict.fromkeys((*_COUNTS, "minContains", "maxContains"), (_is_count, "a count")),
}


def _bytes_of(value: Any, meter: _Meter) -> bytes:
    try:
        data = canonical(value)
    except ValueRejected:  # a list deeper by one than other values, and than any operand
        return b""
    meter.charge(len(data) // 64 + 1)
    return data


def _within(rule: str, at: _At, wanted: Any = None) -> str:
    shown = "" if wanted is None else f" {canonical(wanted).decode()}"
    return f"{rule}{shown} at {_pointer(at) or '/'}"


def _pointer(at: _At) -> str:
    parts: list[str] = []
    while at is not None:
        at, part = at
        parts.append(part.replace("~", "~0").replace("/", "~1") if type(part) is str else f"{part}")
    return "".join(f"/{part}" for part in reversed(parts))


def _type(names: Any, value: Any, at: _At, _meter: _Meter, _: Any) -> str | None:
    if any(_TYPES[name](value) for name in names):
        return None
    return _within("type", at, names[0] if len(names) == 1 else list(names))


def _enum(options: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    meter.charge(len(options) // 8 + 1)
    return None if _bytes_of(value, meter) in options else _within("enum", at)


def _const(wanted: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    return None if _bytes_of(value, meter) == wanted else _within("const", at)


def _bound(rule: str) -> Callable[..., str | None]:
    test = _BOUNDS[rule]

    def judge(bound: Any, value: Any, at: _At, _meter: _Meter, _: Any) -> str | None:
        fits = not is_number(value) or test(value, bound)
        return None if fits else _within(rule, at, bound)

    return judge


def _count(rule: str) -> Callable[..., str | None]:
    kind: Any
    kind, least = _COUNTS[rule], rule.startswith("min")

    def judge(bound: Any, value: Any, at: _At, _meter: _Meter, _: Any) -> str | None:
        if type(value) is not kind:
            return None
        fits = len(value) >= bound if least else len(value) <= bound
        return None if fits else _within(rule, at, bound)

    return judge


def _multiple(divisor: Any, value: Any, at: _At, _meter: _Meter, _: Any) -> str | None:
    fits = not is_number(value) or (type(value) is int and value % divisor == 0)
    return None if fits else _within("multipleOf", at, divisor)


def _unique_items(wanted: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    if not wanted or type(value) is not list:
        return None
    seen = {_bytes_of(item, meter) for item in value}
    return None if len(seen) == len(value) else _within("uniqueItems", at)


def _prefix_items(nodes: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    items = value if type(value) is list else []
    return _first(
        node.fault(item, (at, i), meter)
        for i, (node, item) in enumerate(zip(nodes, items, strict=False))
    )


def _items(node: Any, value: Any, at: _At, meter: _Meter, rules: Any) -> str | None:
    if type(value) is not list:
        return None
    start = len(rules.get("prefixItems", ()))
    return _first(node.fault(item, (at, i), meter) for i, item in enumerate(value) if i >= start)


def _contains(node: Any, value: Any, at: _At, meter: _Meter, rules: Any) -> str | None:
    if type(value) is not list:
        return None
    count = sum(node.holds(item, meter) for item in value)
    count_min, count_max = rules.get("minContains", 1), rules.get("maxContains", count)
    return None if count_min <= count <= count_max else _within("contains", at)


def _properties(nodes: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    if type(value) is not dict:
        return None
    meter.charge(len(nodes) // 8)
    return _first(
        node.fault(value[name], (at, name), meter) for name, node in nodes.items() if name in value
    )


def _additional(node: Any, value: Any, at: _At, meter: _Meter, rules: Any) -> str | None:
    if type(value) is not dict:
        return None
    meter.charge(len(value) // 8)
    known = rules.get("properties", {})
    for name in value:
        if name not in known:
            where = (at, name)
            if node is _FALSE:
                return _within("additionalProperties", where)
            fault: str | None = node.fault(value[name], where, meter)
            if fault is not None:
                return fault
    return None


def _property_names(node: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    names = value if type(value) is dict else {}
    if all(node.holds(name, meter) for name in names):
        return None
    return _within("propertyNames", at)


def _required(names: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    if type(value) is not dict:
        return None
    meter.charge(len(names) // 8)
    missing = [name for name in names if name not in value]
    return _within("required", at, missing[0]) if missing else None


def _dependent(needs: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    if type(value) is not dict:
        return None
    for name, names in needs.items():
        meter.charge(len(names) // 8 + 1)
        if name in value and any(other not in value for other in names):
            return _within("dependentRequired", at, name)
    return None


def _dependent_schemas(nodes: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    present = value if type(value) is dict else {}
    return _first(node.fault(value, at, meter) for name, node in nodes.items() if name in present)


def _all_of(nodes: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    return _first(node.fault(value, at, meter) for node in nodes)


def _any_of(nodes: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    return None if any(node.holds(value, meter) for node in nodes) else _within("anyOf", at)


def _one_of(nodes: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    count = sum(node.holds(value, meter) for node in nodes)
    return None if count == 1 else _within("oneOf", at)


def _not(node: Any, value: Any, at: _At, meter: _Meter, _: Any) -> str | None:
    return _within("not", at) if node.holds(value, meter) else None


def _if(node: Any, value: Any, at: _At, meter: _Meter, rules: Any) -> str | None:
    branch = rules.get("then" if node.holds(value, meter) else "else")
    return None if branch is None else branch.fault(value, at, meter)


def _first(faults: Iterator[str | None]) -> str | None:
    return next((fault for fault in faults if fault is not None), None)


def _elsewhere(*_: Any) -> None:
    """Accept a keyword that another rule reads."""


_RULES: Final[dict[str, Callable[..., str | None]]] = {
    "false": lambda _operand, _value, at, _meter, _rules: _within("nothing fits", at),
    "type": _type, "enum": _enum, "const": _const, "multipleOf": _multiple,
    **{rule: _bound(rule) for rule in _BOUNDS},
    **{rule: _count(rule) for rule in _COUNTS},
    "required": _required, "dependentRequired": _dependent, "uniqueItems": _unique_items,
    "prefixItems": _prefix_items, "items": _items, "contains": _contains,
    "minContains": _elsewhere, "maxContains": _elsewhere,
    "properties": _properties, "additionalProperties": _additional,
    "propertyNames": _property_names, "dependentSchemas": _dependent_schemas,
    "allOf": _all_of, "anyOf": _any_of, "oneOf": _one_of, "not": _not,
    "if": _if, "then": _elsewhere, "else": _elsewhere,
}  # fmt: skip
_KNOWN: Final = frozenset(_RULES) - {"false"}
_ORDER: Final = tuple(rule for rule in _RULES if rule != "false")
