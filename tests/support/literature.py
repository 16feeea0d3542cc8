"""Helpers of tests of the benchmarks of the literature: a workload through the serial oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from bench.literature.driver import complete, deploy_record, module_file
from bench.literature.evidence import from_outputs
from bench.literature.judging import Invariant, Judge
from streamydb.procedures.modules import MemoryModules
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord

Mutation = Callable[[OutputRecord, Any], Any]
"""Gets an output and its value as JSON; gives another value, or None to lose the output."""


class Serial:
    """A log in memory and what the serial oracle makes of it."""

    def __init__(self, *modules: str) -> None:
        texts = [module_file(module).read_bytes() for module in modules]
        known = MemoryModules()
        for text in texts:
            known.put(text)
        self.oracle = Oracle("bench", modules=known)
        self.log: list[bytes] = []
        self.outputs: list[OutputRecord] = []
        self.appended = 0
        self.run(deploy_record(module, number) for number, module in enumerate(modules))

    def run(self, payloads: Iterable[bytes]) -> None:
        """Append transactions and execute them, their follow-ups after them."""
        waiting = [*payloads]
        self.appended += len(waiting)
        for payload in waiting:
            at = len(self.log)
            self.log.append(payload)
            outputs = self.oracle.apply(payload, 0, at, 1000 + at)
            self.outputs += outputs
            waiting += [output.value or b"" for output in outputs if output.topic == "transactions"]

    def judged(self, judge: Judge, mutation: Mutation | None = None) -> list[Invariant]:
        """What a judge says of it, or of what a mutation makes of the outputs."""
        outputs = self.outputs if mutation is None else list(mutated(self.outputs, mutation))
        evidence = from_outputs(judge, self.log, outputs)
        return [complete(evidence, self.appended), *judge.invariants()]


def mutated(outputs: Iterable[OutputRecord], mutation: Mutation) -> Iterable[OutputRecord]:
    """The outputs, each as the mutation wants it."""
    for output in outputs:
        if output.value is None:
            yield output
            continue
        value = mutation(output, json.loads(output.value))
        if value is not None:
            yield output._replace(value=json.dumps(value).encode())


class LastOf:
    """A mutation: change what the last change of a key says, whatever else there is."""

    def __init__(self, serial: Serial, key: str, change: Callable[[Any], Any]) -> None:
        told = (output for output in serial.outputs if output.value is not None)  # as `mutated`
        places = [i for i, output in enumerate(told)
                  if output.topic == "changes" and output.key == key.encode()]  # fmt: skip
        assert places, f"{key} was never changed"
        self._wanted, self._at, self._change = places[-1], -1, change

    def __call__(self, _: OutputRecord, value: Any) -> Any:
        self._at += 1
        if self._at != self._wanted:
            return value
        after = self._change(value["after"])
        return None if after is None else {**value, "after": after}


def broken(found: Iterable[Invariant]) -> set[str]:
    """The first words of the invariants that do not hold."""
    return {each.name for each in found if not each.ok}
