"""Scripted answers: the Python client does what `tests/clients/vectors.json` says, which other
clients are held against.
"""

from __future__ import annotations

import json

import pytest

from tests.clients import scans
from tests.clients.vectors import CASES, FILE, played

STORED = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str) -> None:
    case = CASES[name]
    assert STORED[name] == {**case, **played(case)}, "run: python -m tests.clients.vectors"


def test_there_are_no_others() -> None:
    assert list(STORED) == list(CASES)


def test_the_checks_of_scans() -> None:
    stored = json.loads(scans.FILE.read_text("utf-8"))
    assert json.loads(json.dumps(scans.made())) == stored, "run: python -m tests.clients.scans"
