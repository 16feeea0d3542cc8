"""Attempts with the locks that a transaction needs: no client says "aborted" while one may commit.

A transaction that lacks the lock of a unique constraint is aborted, and the facade or the client
appends it again under the next id. Here that one is slow, or answers about it are lost.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from streamydb.client import (
    ClientError,
    ConstraintViolatedError,
    Options,
    OutcomeUnknownError,
    Prepared,
    TransactionUnknownError,
    UndeclaredKeyError,
)
from streamydb.client.transactions import prepare
from streamydb.facade.ports import LogPosition
from streamydb.limits import LOCK_ATTEMPTS_MAX
from streamydb.records.attempts import relocked
from streamydb.testing.clients import Awaited, Kind, MemoryHost
from tests.support.seeds import seeds

KINDS: list[Kind] = ["http", "direct"]
PUT = {"op": "put", "key": "user/1", "value": {"email": "a"}}
COUNT = {"op": "add", "key": "count", "by": 1}


def client_of(host: MemoryHost, kind: Kind, *, blocking: bool, timeout_s: float = 30) -> Any:
    options = Options(backoff_s=0.001, backoff_max_s=0.002, timeout_s=timeout_s)
    if blocking:
        return host.connect(kind, options=options)
    return Awaited(host.portal, host.connect_async(kind, options=options))


def declare(client: Any) -> None:
    client.transaction(constrain={"declare": {"name": "c", "prefix": "user/", "unique": "$.email"}})


class Stopper:
    """Stops the execution when an id is appended, once."""

    def __init__(self, host: MemoryHost) -> None:
        self.named = ""
        self._database = host.database
        self._append = host.database.log.append
        host.database.log.append = self._appended  # type: ignore[method-assign]

    async def _appended(self, txn_id: str, payload: bytes, headers: Any = None) -> LogPosition:
        if txn_id == self.named:
            self.named, self._database.executing = "", False
        return await self._append(txn_id, payload, headers)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_outcome_is_that_of_the_last_attempt(kind: Kind, *, blocking: bool) -> None:
    with MemoryHost() as host:
        client = client_of(host, kind, blocking=blocking, timeout_s=0.2)
        declare(client)
        Stopper(host).named = "t~1"
        with pytest.raises(OutcomeUnknownError) as raised:
            client.transaction(txn_id="t", updates=[PUT, COUNT])
        with pytest.raises(OutcomeUnknownError):
            raised.value.ask()
        with pytest.raises(OutcomeUnknownError) as asked:
            client.verdict("t")
        host.resume()
        for found in (raised.value.ask, asked.value.ask, asked.value.send_again):
            assert found().id == "t~1"
        assert client.verdict("t").id == "t~1"
        assert raised.value.send_again().id == "t~1"
        assert client.get("count") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_that_nobody_has_followed_may_be_followed_yet(kind: Kind) -> None:
    with MemoryHost() as host, host.connect(kind) as client:
        declare(client)
        lone = prepare("t", updates=[PUT], deadline_ms=client.session.deadline_ms()).payload
        host.database.log.records.append(lone)
        host.do(host.database.run)
        with pytest.raises(OutcomeUnknownError):
            client.verdict("t")
        assert client.send(Prepared("t", lone)).id == "t~1"
        assert client.verdict("t").id == "t~1"


@pytest.mark.parametrize("kind", KINDS)
def test_the_abort_of_the_last_attempt_is_told(kind: Kind) -> None:
    with MemoryHost() as host, host.connect(kind) as client:
        declare(client)
        client.put("user/2", {"email": "a"})
        with pytest.raises(ConstraintViolatedError):
            client.atomic("t").put("user/1", {"email": "a"}).commit()
        with pytest.raises(ConstraintViolatedError):
            client.verdict("t")


@pytest.mark.parametrize("kind", KINDS)
def test_after_so_many_attempts_the_lack_of_locks_is_final(kind: Kind) -> None:
    with MemoryHost() as host, host.connect(kind) as client:
        declare(client)
        append, index = host.database.log.append, host.database.log.index
        moves: list[str] = []

        async def moved(txn_id: str, payload: bytes, headers: Any = None) -> LogPosition:
            if txn_id.startswith("t") and txn_id not in moves:  # the key that it gives up changes
                moves.append(txn_id)
                put = {**PUT, "value": {"email": f"own {len(moves)}"}}
                other = json.dumps({"id": f"o{len(moves)}", "updates": [put]}).encode()
                for attempt in range(3):
                    named = f"o{len(moves)}" + (f"~{attempt}" if attempt else "")
                    await append(named, other)
                    verdict = index.of(named)
                    assert verdict is not None
                    again = relocked(named, other, verdict)
                    if again is None:
                        break
                    other = again[1]
            return await append(txn_id, payload, headers)

        host.database.log.append = moved  # type: ignore[method-assign]
        with pytest.raises(UndeclaredKeyError):
            client.transaction(txn_id="t", updates=[PUT])
        assert len(moves) == LOCK_ATTEMPTS_MAX
        with pytest.raises(UndeclaredKeyError):
            client.verdict("t")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(seeds(8, 4)))
def test_no_outcome_is_told_falsely(kind: Kind, seed: int) -> None:
    rng = random.Random(f"attempts {seed}")
    with MemoryHost() as host:
        client = client_of(host, kind, blocking=rng.random() < 0.5, timeout_s=0.05)
        declare(client)
        stopper, committed = Stopper(host), 0
        for number in range(8):
            stopper.named = f"t{number}" + rng.choice(["", "~1", "~1", "~2", "-"])
            host.faults.lost, host.faults.refused = rng.choice([0, 0, 1, 3]), rng.choice([0, 0, 2])
            put = {**PUT, "key": f"user/{rng.randrange(3)}", "value": {"email": rng.randrange(9)}}
            call = partial(client.transaction, txn_id=f"t{number}", updates=[put, COUNT])
            committed += told(call, host, rng)
            host.faults.lost = host.faults.refused = 0
            host.resume()
            assert client.get("count", 0) == committed, f"transaction {number}"


def told(call: Callable[[], Any], host: MemoryHost, rng: random.Random) -> bool:
    """Return True if a client says in the end that it is committed, False if that it is not."""
    unknown: OutcomeUnknownError | None = None
    for _ in range(30):
        if rng.random() < 0.3:
            host.resume()
        try:
            call()
        except OutcomeUnknownError as error:
            unknown = error
        except TransactionUnknownError:
            host.resume()
        except ClientError as error:
            if unknown is None or not (error.retriable or error.uncertain):
                return False
        else:
            return True
        assert unknown is not None
        call = unknown.ask if rng.random() < 0.7 else unknown.send_again
    raise AssertionError("it is never told")
