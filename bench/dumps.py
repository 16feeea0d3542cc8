"""Where the threads of a JVM are, by the clock: `python -m bench.dumps PID` (Linux).

A profiler of processor time does not show what waits: for Kafka, a file, another process. This one
asks the JVM for the stacks of all threads, over and over at random moments, and prints for each
kind of thread which share of the moments found it in a method; threads of one kind add up. Asking
takes some milliseconds.

Source: HotSpot's attach protocol (`jcmd` opens its socket), version 1.
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["Moments", "main"]

_ASK: Final = b"1\0threaddump\0\0\0\0"
_CHUNK: Final = 1 << 16
_THREAD: Final = re.compile(r'^"([^"]+)"', re.MULTILINE)
_METHOD: Final = re.compile(r"^\s+at (\S+)\(", re.MULTILINE)
_NUMBERS: Final = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|\d[\d.]*")
_IDLE: Final = re.compile(
    r"java\.(lang\.Thread|util\.concurrent|lang\.Object|lang\.ref|base)|jdk\.internal"
)


class Moments:
    """Stacks of some moments.

    Attributes:
        count: how many moments.
        threads: kind of thread (its name without numbers) -> method -> in how many stacks.
    """

    def __init__(self) -> None:
        """None yet."""
        self.count = 0
        self.threads: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, dump: str) -> None:
        """Take in a thread dump; threads that only wait for work are left out."""
        self.count += 1
        for block in dump.split("\n\n"):
            name, methods = _THREAD.search(block), _METHOD.findall(block)
            if name is not None and not all(_IDLE.match(method) for method in methods):
                self.threads[_NUMBERS.sub("N", name[1])].update(set(methods))

    def report(self, least: float) -> list[str]:
        """Lines: for each kind of thread its methods, by their share of the moments."""
        lines = []
        for name, methods in sorted(self.threads.items()):
            shown = [
                f"{count / self.count:7.1%}  {method}"
                for method, count in methods.most_common()
                if count >= least * self.count
            ]
            lines += [name, *shown] if shown else []
        return lines


def _dump(address: Path) -> str:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(address))
        channel.sendall(_ASK)
        parts = []
        while part := channel.recv(_CHUNK):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def main(arguments: list[str] | None = None) -> None:
    """Ask, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.dumps", description=__doc__)
    parser.add_argument("pid", type=int, help="of the JVM: `jcmd` lists them")
    parser.add_argument("--moments", type=int, default=400)
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two, about")
    parser.add_argument("--least", type=float, default=0.01, help="share of moments to show")
    options = parser.parse_args(arguments)
    try:
        subprocess.run(
            ["jcmd", str(options.pid), "VM.version"], check=True, stdout=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError) as error:
        parser.error(f"jcmd does not reach process {options.pid}: {error}")
    moments = Moments()
    with suppress(ConnectionError, FileNotFoundError):  # it has ended: what was seen counts
        for _ in range(options.moments):
            moments.add(_dump(Path(f"/tmp/.java_pid{options.pid}")))  # noqa: S108 - HotSpot's
            time.sleep(random.uniform(0.5, 1.5) * options.every)  # noqa: S311 - not in step
    print(*moments.report(options.least), sep="\n")


if __name__ == "__main__":
    main()
