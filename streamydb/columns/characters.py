"""The bytes of JSON by name, for kernels that read or write it: numba takes them as constants."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BACKSLASH",
    "BACKSPACE",
    "CLOSE_BRACE",
    "CLOSE_BRACKET",
    "COLON",
    "COMMA",
    "DOT",
    "FORM_FEED",
    "LINE_FEED",
    "LOWER_A",
    "LOWER_B",
    "LOWER_C",
    "LOWER_D",
    "LOWER_E",
    "LOWER_F",
    "LOWER_L",
    "LOWER_N",
    "LOWER_R",
    "LOWER_T",
    "LOWER_U",
    "MINUS",
    "NINE",
    "OPEN_BRACE",
    "OPEN_BRACKET",
    "PLUS",
    "QUOTE",
    "RETURN",
    "SPACE",
    "TAB",
    "TILDE",
    "UPPER_E",
    "ZERO",
]

BACKSPACE: Final = ord("\b")
TAB: Final = ord("\t")
LINE_FEED: Final = ord("\n")
FORM_FEED: Final = ord("\f")
RETURN: Final = ord("\r")
SPACE: Final = ord(" ")
QUOTE: Final = ord('"')
PLUS: Final = ord("+")
COMMA: Final = ord(",")
MINUS: Final = ord("-")
DOT: Final = ord(".")
ZERO: Final = ord("0")
NINE: Final = ord("9")
COLON: Final = ord(":")
UPPER_E: Final = ord("E")
OPEN_BRACKET: Final = ord("[")
BACKSLASH: Final = ord("\\")
CLOSE_BRACKET: Final = ord("]")
LOWER_A: Final = ord("a")
LOWER_B: Final = ord("b")
LOWER_C: Final = ord("c")
LOWER_D: Final = ord("d")
LOWER_E: Final = ord("e")
LOWER_F: Final = ord("f")
LOWER_L: Final = ord("l")
LOWER_N: Final = ord("n")
LOWER_R: Final = ord("r")
LOWER_T: Final = ord("t")
LOWER_U: Final = ord("u")
OPEN_BRACE: Final = ord("{")
CLOSE_BRACE: Final = ord("}")
TILDE: Final = ord("~")
