"""Who appends hears what became of it, whatever happens to others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamydb.facade.clocks import LogClock
from streamydb.facade.kafka_appends import KafkaAppends
from streamydb.facade.ports import LogPosition
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError
from streamydb.testing.in_process import scenario
from tests.support.seeds import seeds

_Deliver = Callable[[Appended | None, AppendError | None], None]


class RandomProducer:
    """Takes a record at once, in a thread, or not; tells of its fate in a thread, soon.

    ``log``: the payloads that it has told to be in the log.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._threads = ThreadPoolExecutor(2)
        self.log: list[bytes] = []
        self.refused: set[bytes] = set()
        self.unknown: set[bytes] = set()

    def append_at_once(self, payload: bytes, deliver: _Deliver, **_: Any) -> bool:
        if self._dice.random() < 0.2:
            return False
        self._threads.submit(self._deliver, payload, deliver)
        return True

    def append_async(self, payload: bytes, deliver: _Deliver, **_: Any) -> None:
        if self._dice.random() < 0.3:
            self.refused.add(payload)
            raise AppendError("refused")
        self._threads.submit(self._deliver, payload, deliver)

    def _deliver(self, payload: bytes, deliver: _Deliver) -> None:
        if self._dice.random() < 0.1:
            self.unknown.add(payload)
            deliver(None, AppendError("late"))
        else:
            self.log.append(payload)
            deliver(Appended(0, self.log.index(payload), 1), None)

    def close(self, _timeout_s: float) -> None:
        self._threads.shutdown()


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
@scenario
async def test_each_hears_its_own_fate(seed: int) -> None:
    dice = random.Random(seed)
    made: Any = RandomProducer(random.Random(seed))
    producer: RandomProducer = made
    with ThreadPoolExecutor(2) as executor:
        appends = KafkaAppends(made, LogClock(), executor)
        tasks = {}
        for number in range(60):
            payload = b"%d" % number
            tasks[payload] = asyncio.create_task(appends.append(payload, None))
            if dice.random() < 0.3:
                await asyncio.sleep(dice.choice([0, 0.001, 0.004]))
            if dice.random() < 0.1:
                tasks[payload].cancel()
            if dice.random() < 0.3:
                appends.decided({0: len(producer.log)})
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await appends.close(5)
    heard = 0
    for payload, task in tasks.items():
        if task.cancelled():
            continue
        if payload in producer.refused:
            assert isinstance(task.exception(), KafkaUnavailableError)
        elif payload in producer.unknown:
            assert isinstance(task.exception(), AppendUnknownError)
        else:
            assert task.result() == LogPosition(0, producer.log.index(payload))
            heard += 1
    assert heard > 20
    assert len(producer.log) == len(set(producer.log))
