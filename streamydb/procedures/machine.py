"""The machine: instrumented code calls it instead of Python's operators, and it charges first.

The compiler (`transform`) puts calls of these methods where an operation could take long, use much
memory, or depend on anything but its operands. Only exact built-in types get through, so no
operation runs code that was not instrumented.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from streamydb.procedures.meter import ITEMS_PER_STEP, TEXT_PER_STEP, is_of_language
from streamydb.procedures.methods import ATTRIBUTES, METHODS
from streamydb.procedures.namespaces import Namespace
from streamydb.procedures.sets import OrderedSet
from streamydb.procedures.text_meter import TextMeter
from streamydb.procedures.work import SEARCHED_FREE, WORD, steps_of_find, steps_of_levels

__all__ = ["HELPERS", "Machine"]

_NUMBERS: Final = {int, float, bool}
_SEQUENCES: Final = (str, list, tuple)
_SCALARS: Final = {int, float, bool, type(None)}
_BITS_PER_STEP: Final = 256
"""Bits of a product or a dividend of up to 4,096 bits that one step takes."""
_CAUGHT_STEPS: Final = 4


class Machine(TextMeter):
    """One call: its meter and its operators. `HELPERS` names the methods that code may call."""

    __slots__ = ()

    def add(self, left: Any, right: Any) -> Any:
        """Left + right."""
        kind = type(left)
        if kind is int and type(right) is int:
            total = left + right
            return total if -WORD < total < WORD else self.integer(total)
        if kind in _NUMBERS and type(right) in _NUMBERS:
            return self.integer(left + right)
        if kind in _SEQUENCES and type(right) is kind:
            self._copied(kind, len(left) + len(right))
            return left + right
        return self._unfit("+", left, right)

    def sub(self, left: Any, right: Any) -> Any:
        """Left - right."""
        if type(left) is int and type(right) is int:
            total = left - right
            return total if -WORD < total < WORD else self.integer(total)
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return self.integer(left - right)
        if type(left) is type(right) is OrderedSet:
            return left.difference(right)
        return self._unfit("-", left, right)

    def mul(self, left: Any, right: Any) -> Any:
        """Left * right."""
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return self.product(left * right)
        if type(left) is int:
            left, right = right, left
        if type(left) in _SEQUENCES and type(right) in (int, bool):
            self._copied(type(left), len(left) * max(0, right))
            return left * right
        return self._unfit("*", left, right)

    def mod(self, left: Any, right: Any) -> Any:
        """Left % right, for numbers only."""
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return left % right if -WORD < left < WORD else self.dividend(left) % right
        return self._unfit("%", left, right)

    def floor(self, left: Any, right: Any) -> Any:
        """Left // right, for numbers only."""
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return left // right if -WORD < left < WORD else self.dividend(left) // right
        return self._unfit("//", left, right)

    def dividend(self, number: Any) -> Any:
        """Return the number that is divided, after a charge for its length."""
        if type(number) is int and not -WORD < number < WORD:
            self.charge(number.bit_length() // _BITS_PER_STEP)
        return number

    def product(self, number: Any) -> Any:
        """As `integer`, after a charge for the length of what a multiplication gave."""
        if type(number) is int and not -WORD < number < WORD:
            self.charge(number.bit_length() // _BITS_PER_STEP)
            return self.integer(number)
        return number

    def power(self, left: Any, right: Any) -> Any:
        """Left ** right, for integers: other powers differ in the last bit between machines."""
        if type(left) not in (int, bool) or type(right) not in (int, bool) or right < 0:
            raise TypeError("** takes an integer and an integer that is not negative")
        if abs(left) > 1 and int(left).bit_length() * right > 2 * 4096:
            self.exceed("integer")
        if right > _BITS_PER_STEP:
            self.charge(int(right).bit_length() // 2)
        return self.product(left**right)

    def shift(self, left: Any, right: Any) -> Any:
        """Left << right."""
        if type(left) not in (int, bool) or type(right) not in (int, bool):
            return self._unfit("<<", left, right)
        if right > 4096 and left:
            self.exceed("integer")
        return self.integer(left << right) if left else 0

    def union(self, left: Any, right: Any) -> Any:
        """Left | right."""
        if type(left) is type(right) is OrderedSet:
            return left.union(right)
        if type(left) is type(right) is dict:
            self.charge((len(left) + len(right)) // 4 + 1)
            self._merge(left, right)
            return left | right
        return self._bits(operator.or_, "|", left, right)

    def both(self, left: Any, right: Any) -> Any:
        """Left & right."""
        if type(left) is type(right) is OrderedSet:
            return left.intersection(right)
        return self._bits(operator.and_, "&", left, right)

    def either(self, left: Any, right: Any) -> Any:
        """Left ^ right."""
        if type(left) is type(right) is OrderedSet:
            return left.symmetric_difference(right)
        return self._bits(operator.xor, "^", left, right)

    def plain(self, value: Any) -> Any:
        """An operand of /, // and unary operators: a number."""
        if type(value) not in _NUMBERS:
            raise TypeError(f"a {type(value).__name__} is no number")
        return value

    def augment(self, helper: str, left: Any, right: Any) -> Any:
        """The value of ``left`` after an assignment like ``left += right``."""
        if helper == "add" and type(left) is list:
            left += self.listed(right)
            return left
        operate: Callable[[Any, Any], Any] = getattr(self, helper)
        return operate(left, right)

    def augment_item(self, helper: str, container: Any, key: Any, right: Any) -> None:
        """container[key] += right."""
        if type(key) is not str or len(key) > TEXT_PER_STEP:
            self.placed(container, key)
        left = container[key]
        if helper == "add" and type(left) is not list:
            container[key] = self.add(left, right)
        else:
            container[key] = self.augment(helper, left, right)

    def compared(self, value: Any) -> Any:
        """An operand of a comparison."""
        return value if type(value) in _SCALARS else self.walk(value)

    def ranked(self, value: Any) -> Any:
        """An operand of a comparison that asks which is less."""
        kind = type(value)
        if kind in _SCALARS:
            return value
        self.walk(value)
        if kind is list or kind is tuple:
            self.charge(steps_of_levels(value))
        return value

    def held(self, item: Any, container: Any) -> bool:
        """Item in container."""
        kind = type(container)
        if type(item) is not str or len(item) > TEXT_PER_STEP:
            self.compared(item)
            if kind is dict:
                self.search(len(container), item)
        if kind is not dict:
            self.searched(container)
        if kind is str and type(item) is str:
            self.charge(steps_of_find(len(container), len(item)))
        elif kind is range and type(item) is not int:
            self.charge(len(container) * self.weight_of(container) // ITEMS_PER_STEP)
        return item in container

    def delved(self, value: Any) -> Any:
        """Return the value in which `in` searches for something, within a chain of comparisons."""
        kind = type(value)
        if kind is dict or kind is OrderedSet:
            self.charge(len(value) // 4)
        elif kind is str:
            self.charge(max(steps_of_find(len(value), part) for part in (99, len(value) // 2)))
        elif kind is range:
            self.charge(len(value) * self.weight_of(value) // ITEMS_PER_STEP)
        return self.searched(value)

    def weight_of(self, items: range) -> int:
        """The steps, beyond none, that sixteen integers of a range take: they may be long."""
        return max(abs(items.start), abs(items.stop)).bit_length() // _BITS_PER_STEP

    def searched(self, value: Any) -> Any:
        """Return the value in which `in` searches."""
        kind = type(value)
        if kind is dict or kind is OrderedSet:
            return value
        if kind is range:
            self.charge(len(value) // ITEMS_PER_STEP + 1)
            return value
        if kind is str:
            self.text(len(value))
            return value
        return self.walk(value)

    def key(self, value: Any) -> Any:
        """A key of a dict or an index."""
        kind = type(value)
        if kind is str:
            if len(value) > TEXT_PER_STEP:
                self.charge(len(value) // TEXT_PER_STEP)
            return value
        return value if kind in _SCALARS else self.walk(value)

    def found(self, owner: Any, key: Any) -> Any:
        """The key, or index, of an item that is looked for."""
        self.key(key)
        if type(owner) is dict:
            self.search(len(owner), key)
        return key

    def placed(self, owner: Any, key: Any) -> Any:
        """The key, or index, of an item that is stored or deleted; perhaps it is read before."""
        if type(key) is not str or len(key) > TEXT_PER_STEP:
            self.found(owner, key)
            if type(owner) is dict:
                self.search(len(owner), key)
        return key

    def item(self, owner: Any, key: Any) -> Any:
        """owner[key]."""
        kind = type(key)
        if kind is str:
            if len(key) > TEXT_PER_STEP:
                self.key(key)
        elif kind is not int or type(owner) is dict:
            self.found(owner, key)
        return owner[key]

    def make_dict(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """A dict comprehension."""
        made: dict[Any, Any] = {}
        for key, value in pairs:
            if type(key) is not str or len(key) > TEXT_PER_STEP:
                self.found(made, key)
            made[key] = value
        return made

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """value[start:stop:step]."""
        if type(value) not in (str, list, tuple, range):
            raise TypeError(f"a {type(value).__name__} has no slices")
        chosen = slice(start, stop, step)
        length = len(range(*chosen.indices(len(value))))
        if type(value) is str:
            self.text(length)
        else:
            self.items(length)
        return value[chosen]

    def shortened(self, value: Any) -> Any:
        """Return the value of which an item is deleted: all behind it in a list are moved."""
        if type(value) is list:
            self.items(len(value))
        elif type(value) is dict:
            self.deleted += 1
        return value

    def iterated(self, items: Any) -> Any:
        """Return the value that a loop goes through."""
        if self.deleted and type(items) is dict:
            self.pass_gaps()
        return items

    def make_set(self, items: list[Any]) -> OrderedSet:
        """A set display or comprehension."""
        return OrderedSet(self, items)

    def iterator(self, items: list[Any]) -> Any:
        """A generator expression, which has given all its items: a chain of lazy ones is deep."""
        return iter(items)

    def listed(self, items: Any) -> list[Any]:
        """All items, charged; of a generator as it gives them."""
        kind = type(items)
        if kind in (list, tuple, dict, str, range, OrderedSet):
            self.items(len(items))
            if kind is dict:
                self.pass_gaps()
            elif kind is range:
                self.charge(len(items) * self.weight_of(items) // ITEMS_PER_STEP)
            return list(items)
        found = []
        for item in iter(items):
            self.tick()
            found.append(item)
        return found

    def mapping(self, items: Any) -> dict[Any, Any]:
        """Return the dictionary that ** unpacks."""
        if type(items) is not dict:
            raise TypeError("** takes a dict")
        self.items(len(items))
        self.charge(len(items) // 4)
        self.pass_gaps()
        self.search_all(items)
        return items

    def load(self, owner: Any, name: str) -> Any:
        """owner.name, where it is no call."""
        if type(owner) is Namespace:
            return owner.value(name)
        allowed = ATTRIBUTES.get(type(owner))
        if allowed is None or name not in allowed:
            raise AttributeError(f"a {type(owner).__name__} has no attribute {name}")
        return getattr(owner, name)

    def method(self, owner: Any, name: str, /, *args: Any, **named: Any) -> Any:
        """owner.name(...)."""
        self.tick()
        if type(owner) is Namespace:
            return owner.value(name)(self, *args, **named)
        table = METHODS.get(type(owner))
        found = None if table is None else table.get(name)
        if found is None:
            raise AttributeError(f"a {type(owner).__name__} has no method {name}")
        return found(self, owner, *args, **named)

    def method1(self, owner: Any, name: str, first: Any) -> Any:
        """As `method`, with one argument: nothing is packed for it."""
        self.left -= 1
        if self.left < 0:
            self.exceed("steps")
        table = METHODS.get(type(owner))
        found = None if table is None else table.get(name)
        if found is None:
            return self._foreign(owner, name)(self, first)
        return found(self, owner, first)

    def method2(self, owner: Any, name: str, first: Any, second: Any) -> Any:
        """As `method`, with two arguments."""
        self.left -= 1
        if self.left < 0:
            self.exceed("steps")
        table = METHODS.get(type(owner))
        found = None if table is None else table.get(name)
        if found is None:
            return self._foreign(owner, name)(self, first, second)
        return found(self, owner, first, second)

    def _foreign(self, owner: Any, name: str) -> Callable[..., Any]:
        """Return the function of a module, as no type has such a method."""
        if type(owner) is Namespace:
            return owner.value(name)  # type: ignore[no-any-return]
        raise AttributeError(f"a {type(owner).__name__} has no method {name}")

    def wrapped(self, function: Callable[..., Any], steps: int = 1) -> Callable[..., Any]:
        """A lambda that counts the depth of its calls, of so many steps each."""

        def call(*args: Any, **named: Any) -> Any:
            self.enter(steps)
            try:
                return function(*args, **named)
            finally:
                self.leave()

        return call

    def spent(self, steps: int, unpacks: bool = False) -> bool:  # noqa: FBT001, FBT002
        """So many steps, and those of unpacking a dict; true,
        so that it can stand in a condition.
        """
        self.left -= steps
        if self.left < 0:
            self.exceed("steps")
        if unpacks and self.deleted:
            self.pass_gaps()
        return True

    def owner(self, value: Any) -> Any:
        """Return the value of which an item is stored, under a key that nobody can see yet."""
        if type(value) is dict:
            self.charge(len(value) // 4)
        return value

    def caught(self, handlers: int = 0) -> None:
        """Check that an exception which is being handled does not depend on the machine.

        Python goes through all exceptions that are being handled when another is raised;
        ``handlers``: at most so many in a function.
        """
        self.charge(_CAUGHT_STEPS + self.depth * handlers // ITEMS_PER_STEP)
        error = sys.exception()
        if isinstance(error, RecursionError):
            self.exceed("depth")
        if isinstance(error, Exception) and not is_of_language(error):
            self.give_up(error)

    def _merge(self, left: dict[Any, Any], right: dict[Any, Any]) -> None:
        """Charge for finding the keys of two dicts in one that has both."""
        self.pass_gaps()
        if len(left) + len(right) >= SEARCHED_FREE:
            for key in (*left, *right):
                self.search(len(left) + len(right), key)

    def _copied(self, kind: type, length: int) -> None:
        self.charge(length // (TEXT_PER_STEP if kind is str else ITEMS_PER_STEP) + 1)

    def _bits(self, operate: Callable[[Any, Any], Any], sign: str, left: Any, right: Any) -> Any:
        if type(left) in (int, bool) and type(right) in (int, bool):
            return operate(left, right)
        return self._unfit(sign, left, right)

    def _unfit(self, sign: str, left: Any, right: Any) -> NoReturn:
        raise TypeError(f"no {type(left).__name__} {sign} {type(right).__name__}")


HELPERS: Final = (
    "tick", "enter", "leave", "add", "sub", "mul", "mod", "power", "shift", "union", "both",
    "either", "plain", "augment", "augment_item", "compared", "searched", "key", "cut", "shortened",
    "charge", "delved", "floor", "found", "held", "item", "iterated", "make_dict", "owner",
    "pass_gaps", "placed", "ranked", "spent",
    "make_set", "iterator", "listed", "mapping", "joined", "formatted", "load", "method", "method1",
    "method2", "wrapped",
    "caught",
)  # fmt: skip
"""Methods that instrumented code calls; in its namespace they stand as `__name__`."""
