"""Requests are refused as long as the event loop is late, and taken again when it keeps up."""

from __future__ import annotations

import math
import time
from contextlib import suppress

import pytest

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.admission import Admission
from streamydb.facade.memory import MemoryDatabase
from streamydb.facade.problems import ProblemError
from streamydb.facade.testing import InProcess, scenario, until


def taken(admission: Admission, wanted: int) -> int:
    """How many of so many requests are taken in this tick."""
    for count in range(wanted):
        with suppress(ProblemError):
            admission.enter()
            continue
        return count
    return wanted


@scenario
async def test_a_late_loop_halves_what_is_taken_and_then_it_grows_again() -> None:
    admission = Admission(0.5, 200)
    admission._ticking = True  # the test ticks
    assert taken(admission, 100) == 100
    admission.tick(0.5)
    assert taken(admission, 100) == 100
    admission.tick(0.6)
    assert taken(admission, 100) == 50
    admission.tick(2.0)
    assert taken(admission, 100) == 25
    for _ in range(10):
        admission.tick(9.0)
    assert taken(admission, 100) == 5, "some are always taken"
    grown = []
    while admission.most < math.inf:
        admission.tick(0.0)
        grown.append(taken(admission, 100))
    assert grown[:3] == [6, 7, 8]
    assert grown == sorted(grown)
    assert grown[-1] == 100


@scenario
async def test_a_facade_whose_loop_is_late_refuses_and_recovers() -> None:
    database = MemoryDatabase()
    settings = FacadeSettings(lag_max_s=0.3, requests_max=20)
    app = create_app(database.model, database.log, database.changes, settings)
    async with InProcess(app) as client:
        assert (await client.request("GET", "/v1/kv/a")).status == 404
        begun = time.monotonic()
        while time.monotonic() < begun + 0.7:
            """The loop does something else for longer than a tick."""
        await until(lambda: app._admission.lag_s > 0.3)
        app._admission._taken = 5  # those that came since
        refused = await client.request("GET", "/v1/kv/a")
        assert (refused.status, refused.problem) == (503, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert (await client.request("GET", "/health/live")).status == 200
        await until(lambda: app._admission.most == math.inf)
        assert (await client.request("GET", "/v1/kv/a")).status == 404


@pytest.mark.parametrize("lag_s", [0, -1])
def test_no_delay_at_all_cannot_be_asked_for(lag_s: float) -> None:
    with pytest.raises(ValueError, match="lag_max_s"):
        FacadeSettings(lag_max_s=lag_s)
