"""A fork's command and environment, as the system shows them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import psutil
import pytest

from streamydb.local.title import ROOM, ROOM_BYTES
from tests.support.seeds import seeds

FORK = """
import json, os, sys
from streamydb.local.title import take_title
command, environment = json.loads(sys.stdin.readline())
os.environ.clear()
os.environ.update(environment)
take_title(command, environment)
print(json.dumps(dict(os.environ)), flush=True)
sys.stdin.readline()
"""


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 6)))
def test_what_is_shown_is_what_was_given_as_far_as_there_is_room(seed: int) -> None:
    rng = random.Random(seed)
    room = rng.choice([0, 100, ROOM_BYTES])
    words = ["".join(rng.choices("abé=/", k=rng.randint(1, 60))) for _ in range(rng.randint(1, 90))]
    variables = {
        f"NAME_{number}": "".join(rng.choices("xyzé= ", k=rng.randint(0, 500)))
        for number in range(rng.randint(0, 60))
    }
    with subprocess.Popen(
        [sys.executable, "-c", FORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, ROOM: "." * room},
    ) as forked:  # fmt: skip
        assert forked.stdin is not None
        assert forked.stdout is not None
        forked.stdin.write(json.dumps([words, variables]) + "\n")
        forked.stdin.flush()
        assert json.loads(forked.stdout.readline()) == variables
        process = psutil.Process(forked.pid)
        command = " ".join(process.cmdline())
        # Before the variables may stand the end of a command that is longer than the parent's.
        shown = {n: v for n, v in process.environ().items() if n.startswith("NAME_")}
        forked.stdin.write("\n")
        forked.stdin.flush()
        assert forked.wait(60) == 0
    text = " ".join(words)
    assert text.startswith(command.rstrip("\ufffd").encode("utf-8", "ignore").decode())
    assert shown.items() <= variables.items()
    assert list(shown) == list(variables)[: len(shown)]
    if room == ROOM_BYTES:
        whole = len(text.encode()) < 4_096
        assert command == text or not whole
        assert shown == variables or sum(map(len, variables.values())) > room // 3
