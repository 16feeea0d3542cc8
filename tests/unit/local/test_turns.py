"""Short turns: a thread and those that it starts get them, and no other."""

from __future__ import annotations

import ctypes
import platform
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from streamydb.local import turns

_GET_ATTRIBUTES: Final = {"x86_64": 315, "aarch64": 275}
_LAYOUT: Final = struct.Struct("=IIQiIQQQ")


def told() -> bool:
    """Whether the kernel gives turns of a length that was asked for, and tells them."""
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    return platform.system() == "Linux" and platform.machine() in _GET_ATTRIBUTES and (
        release >= (6, 12)
    )


def turn_ns() -> int:
    """The turn of this thread."""
    found = ctypes.create_string_buffer(_LAYOUT.size)
    number = _GET_ATTRIBUTES[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, found, _LAYOUT.size, 0) == 0
    return int(_LAYOUT.unpack(found.raw)[5])


@pytest.mark.skipif("not told()")
def test_a_thread_and_those_that_it_starts_get_short_turns() -> None:
    seen: list[int] = []

    def take() -> bool:
        taken = turns.take_short_turns()
        inner = threading.Thread(target=lambda: seen.append(turn_ns()))
        inner.start()
        inner.join()
        seen.append(turn_ns())
        return taken

    before = turn_ns()
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(take).result()
    assert seen == [turns.TURN_NS] * 2
    assert turn_ns() == before != turns.TURN_NS


def test_where_there_are_none_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not turns.take_short_turns()


@pytest.mark.skipif("not told()")
def test_a_refusal_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_NORMAL", 99)
    assert not turns.take_short_turns()
