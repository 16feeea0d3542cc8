"""The inner side of a pool's process: its first byte, frames on its pipes, its bounds, no pandas.

A module that a pool starts (`Spare`, `DialoguePool`) imports this and nothing else of the pool's
side: neither a database nor a read model.
"""

from __future__ import annotations

import re
import resource
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

HEAD_BYTES: Final = 4


def frame(value: Any) -> bytes:
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def size_of(head: bytes) -> int:
    return int.from_bytes(head, "big")


def read_frame(pipe: BinaryIO) -> Any:
    """Wait for a frame. Raises EOFError: the other side has gone."""
    head = pipe.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        raise EOFError
    return msgspec.msgpack.decode(pipe.read(size_of(head)))


READY: Final = b"\n"
"""The byte that a process writes when it can take a query."""

_MARGIN_BYTES: Final = 256 << 20
"""Memory that a query may take beside what DuckDB counts: stacks, Arrow's batches."""

_STATUS: Final = Path("/proc/self/status")
_DATA: Final = re.compile(rb"^VmData:\s+(\d+) kB$", re.MULTILINE)


class WithoutPandas(MetaPathFinder):
    """Hides pandas, which pyarrow and DuckDB load where it is, longer than all the rest."""

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing; pandas is not even looked for. Raises ModuleNotFoundError: it is pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def hold(memory_bytes: int | None, cpu_s: int, *, for_good: bool = True) -> None:
    """Hold this process to so much more memory, to processor time in all, and to no new files.

    ``memory_bytes`` None: what was said before. ``for_good``: it cannot be given more later.
    """
    limits = {resource.RLIMIT_CPU: cpu_s, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    used = _DATA.search(_STATUS.read_bytes()) if _STATUS.exists() else None
    if used is not None and memory_bytes is not None:
        # Linux; what the libraries have reserved so far counts too
        limits[resource.RLIMIT_DATA] = 1024 * int(used[1]) + memory_bytes + _MARGIN_BYTES
    for what, bound in limits.items():
        _, hard = resource.getrlimit(what)
        bound_allowed = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (bound_allowed, bound_allowed if for_good else hard))
