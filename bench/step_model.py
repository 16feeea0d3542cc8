"""The model of the work of a procedure's operations, and the values that are the worst for them.

About nanoseconds of the sizes that are touched, whatever the machine charges.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "BIG",
    "CALL",
    "CHARACTER",
    "DEEP",
    "DIGIT",
    "DIGITS",
    "EQUAL",
    "EQUAL_KEYS",
    "EQUAL_SET",
    "FLOATS",
    "GAPS",
    "ITEM",
    "LATER",
    "LIST",
    "OBJECT",
    "PAIRS",
    "PRIME",
    "PROBE",
    "RUN",
    "TEXT",
    "TEXTS",
    "UNICODE",
    "WIDE",
    "Case",
    "E",
    "L",
    "T",
]

CHARACTER: Final = 1.0
"""A character that is looked at; a tenth where it is only copied."""
UNICODE: Final = 60.0
"""A character that is looked up in the tables of Unicode."""
ITEM: Final = 16.0
"""An item of a list or dict that is copied or compared in C."""
OBJECT: Final = 60.0
"""An item for which an object is made, or a function of Python is called."""
PROBE: Final = 3.0
"""An entry of a dict that is passed because its hash differs."""
EQUAL: Final = 20.0
"""An entry of a dict that is compared because its hash is the same."""
DIGIT: Final = 1.0
"""A product of two digits of 30 bits."""
CALL: Final = 300.0
"""A call, an exception, or an iteration of a loop."""

T: Final = 200_000
"""Characters of a long text."""
L: Final = 20_000
"""Items of a long list."""
E: Final = 1_500
"""Keys with the same hash, which cost most of the steps of a call to put into a dict."""
PRIME: Final = 2**61 - 1


class Case(NamedTuple):
    """A row: what it belongs to, what is prepared, what is repeated, and the work of that."""

    entry: str
    setup: str
    operation: str
    work: float


TEXT = f"t = 'ab' * {T // 2}"
WIDE = f"t = 'aé' * {T // 2}"
LATER = f"t = 'a\\U0001fadc' * {T // 2}"
LIST = f"x = [1] * {L}"
TEXTS = f"x = ['ab'] * {L}"
DEEP = "x = [1] * 4000\ny = x[:-1] + [2]\nfor _ in range(50):\n    x, y = [x], [y]"
EQUAL_KEYS = f"d = {{k * {PRIME}: 0 for k in range({E})}}\nk = {E} * {PRIME}"
PAIRS = f"d = {{(k * {PRIME}, 1): 0 for k in range({E // 2})}}\nk = ({E} * {PRIME}, 1)"
RUN = """
size, d, k, i = 4096, {}, 7, 7
while len(d) < 2600:
    d[i] = 0
    i = (5 * i + 1) % size
"""
"""Small numbers that lie, in a dict of 4,096 places, where Python looks one after the other."""
EQUAL_SET = f"s = {{k * {PRIME} for k in range({E})}}\nk = {E} * {PRIME}"
GAPS = "d = {str(k): 0 for k in range(10000)}\nfor k in list(d)[:-1]:\n    del d[k]"
BIG = "a, b = 2 ** 4090 - 1, 2 ** 2045 + 1\nz = a % b"
FLOATS = f"x = [5e-324, 1.7976931348623157e308] * {L // 2}"
DIGITS = (4090 / 30) ** 2 / 4
