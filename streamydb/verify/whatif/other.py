"""The serial oracle with other rules: replaced modules, other constraints.

A replacement stands for every version of its module that the log deploys: where a version is
deployed, calls run the replacement's code. A declared or dropped constraint counts as if that had
been the last transaction before the stretch; what the log declares later comes on top of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from streamydb.constraints import DeclarationRefused, amended
from streamydb.constraints.judge import Judge
from streamydb.errors import ConfigurationError
from streamydb.limits import MODULE_BYTES_MAX
from streamydb.procedures.core import ModuleVersion
from streamydb.procedures.follow_ups import FollowUpCounts, counts_of
from streamydb.procedures.modules import Module, compile_module
from streamydb.records import CONSTRAINTS_KEY, Call, Transaction, decode
from streamydb.records.names import FLOWS_PREFIX, FOLLOW_UP_MARK, UNIQUE_PREFIX
from streamydb.records.ranges import Range, RangeRead
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import Ordered
from streamydb.verify.oracle.outputs import OutputRecord, UsedId
from streamydb.verify.whatif.stretch import History, RememberedIds, WhatIfError


class OtherRules(msgspec.Struct, frozen=True):
    """The rules of the other execution.

    Attributes:
        modules: by name, the code that calls of the module run.
        constrain: declarations and drops, as the field `constrain` of a transaction.
    """

    modules: Mapping[str, Module]
    constrain: Sequence[bytes] = ()

    @property
    def dropped(self) -> list[str]:
        declarations = [msgspec.json.decode(text) for text in self.constrain]
        return [each["drop"] for each in declarations if "drop" in each]


def rules_of(
    modules: Mapping[str, Path], declare: Sequence[Any] = (), drop: Sequence[str] = ()
) -> OtherRules:
    """The rules that files and declarations (JSON values) give.

    Raises:
        ConfigurationError: a file cannot be read.
        ModuleRefused: a module says what a procedure must not.
        WhatIfError: a declaration is none.
    """
    changes = [{"drop": name} for name in dict.fromkeys(drop)] + [
        {"declare": one} for one in declare
    ]
    replaced = {name: _loaded(name, path) for name, path in modules.items()}
    return OtherRules(replaced, [_constrain(one) for one in changes])


def _constrain(change: dict[str, Any]) -> bytes:
    """The field `constrain` of a transaction, as it is decoded."""
    txn = decode(msgspec.json.encode({"id": "whatif", "constrain": change}))
    if not isinstance(txn, Transaction) or txn.constrain is UNSET:
        raise WhatIfError(f"{msgspec.json.encode(change).decode()} is no declaration of a "
                          "constraint: see `streamydb constraints --help`")  # fmt: skip
    return txn.constrain


def _loaded(name: str, path: Path) -> Module:
    if not (name.isidentifier() and name.isascii()):
        raise ConfigurationError(f"{name} is no module's name: give it like shop=new_shop.py")
    try:
        text = path.read_bytes()
    except OSError as fault:
        raise ConfigurationError(f"{path} cannot be read: {fault.strerror}") from None
    if len(text) > MODULE_BYTES_MAX:
        raise ConfigurationError(f"{path} has more than {MODULE_BYTES_MAX} bytes")
    return compile_module(name, text, str(path))


class ResumedOracle(Oracle):
    """The serial oracle, which may begin with a state whose ids are known by their hashes.

    Attributes:
        earlier: the ids that this state remembers.
    """

    def __init__(self, history: History, earlier: RememberedIds) -> None:
        super().__init__(
            history.database, history.id_window, history.source.rulings(), history.modules
        )
        self.earlier = earlier

    def apply(
        self, raw: bytes | None, partition: int, offset: int, ts_ms: int
    ) -> list[OutputRecord]:
        """As `Oracle.apply`; the repetition of an id from before the state has no own outputs.

        Such a repetition writes nothing, and its verdict is the one from before.
        """
        if self.earlier and self.rulings.get((partition, offset)) is None:
            record = decode(raw)
            if isinstance(record, Transaction) and self._is_earlier(record, ts_ms):
                self._next(partition, offset, ts_ms)
                return self._with_removals([])
        return super().apply(raw, partition, offset, ts_ms)

    def _is_earlier(self, txn: Transaction, ts_ms: int) -> bool:
        if txn.id in self._seen or (txn.call is not UNSET and txn.call.batch is not UNSET):
            return False
        return self.earlier.has(txn.id, self.next_seq, ts_ms)


class OtherOracle(ResumedOracle):
    """The execution with other rules, from where another one has come to.

    Recorded follow-ups are those of the execution that was. At the place of each that was in its
    turn, this one executes the next that it has made itself; if there is none, nothing happens.

    Attributes:
        calls: how many calls ran a replacement.
    """

    def __init__(self, history: History, rules: OtherRules, so_far: ResumedOracle) -> None:
        """Take over state, ids and seq, and put the constraints into the state.
        Raises WhatIfError: a constraint makes no sense.
        """
        super().__init__(history, so_far.earlier)
        self.calls = 0
        self._rules = rules
        self.state = dict(so_far.state)
        self.next_seq = so_far.next_seq
        self._seen: OrderedDict[str, UsedId] = OrderedDict(so_far._seen)  # noqa: SLF001 - a copy
        self._made: dict[tuple[str, int], bytes] = {}
        self._before = {
            key.removeprefix(FLOWS_PREFIX): counts_of(value)
            for key, (value, _) in self.state.items()
            if key.startswith(FLOWS_PREFIX)
        }
        self._in_turn = {name: counts.done for name, counts in self._before.items()}
        for text in rules.constrain:
            last = self.next_seq - 1
            try:
                value = amended(self._value(CONSTRAINTS_KEY), text, last)
            except DeclarationRefused as refused:
                raise WhatIfError(f"this constraint is refused: {refused}") from None
            if value is None:
                self.state.pop(CONSTRAINTS_KEY, None)
            else:
                self.state[CONSTRAINTS_KEY] = value, last
        declarations = [msgspec.json.decode(text).get("declare", {}) for text in rules.constrain]
        self._own_indexes = tuple(
            f"{UNIQUE_PREFIX}{each['name']}/{self.next_seq - 1}/" for each in declarations if each
        )
        self._own_counted = tuple(each["prefix"] for each in declarations if "keys" in each)

    def beside(self, was: list[OutputRecord], record: Ordered) -> list[OutputRecord]:
        """The outputs of the record for which the other execution has made the outputs ``was``."""
        ts_ms, partition, offset, raw = record
        batch = _follow_up(raw)
        if batch is not None:
            in_turn = self._is_in_turn(*batch)
            raw = self._own(batch[0], raw) if in_turn else None
            if raw is None:
                self._next(partition, offset, ts_ms)
                outputs_here = [] if in_turn else [out for out in was if out.topic != "changes"]
                return self._with_removals(outputs_here)  # other keys have ended here, perhaps
        outputs = self.apply(raw, partition, offset, ts_ms)
        for output in outputs:
            follow_up = _follow_up(output.value) if output.topic == "transactions" else None
            if follow_up is not None:
                self._made[follow_up] = output.value or b""
        return outputs

    def _is_in_turn(self, module: str, number: int) -> bool:
        """Return True if a recorded follow-up was in its turn; others of that number were not."""
        if number != self._in_turn.get(module, 0) + 1:
            return False
        self._in_turn[module] = number
        return True

    def _own(self, module: str, recorded: bytes | None) -> bytes | None:
        """The next follow-up here; None: there is none. One from before the stretch is recorded."""
        due = counts_of(self._value(FLOWS_PREFIX + module)).done + 1
        before = self._before.get(module, FollowUpCounts(0, 0))
        return recorded if due <= before.made else self._made.get((module, due))

    def _module(self, call: Call, version: ModuleVersion) -> Module | None:
        replaced = self._rules.modules.get(call.module)
        if replaced is None:
            return super()._module(call, version)
        self.calls += 1
        return replaced

    def _judge(
        self, txn: Transaction, touched: Sequence[str], writes: Mapping[str, bytes | None]
    ) -> Judge:
        """As `Oracle._judge`; a transaction gets the locks that a constraint of ours wants."""
        judge = super()._judge(txn, touched, writes)
        locks = dict.fromkeys(name for _, name in judge.missing(writes))
        missing = [lock for name in locks if (lock := self._own_lock(name))]
        if not missing:
            return judge
        locked = msgspec.structs.replace(txn, locks=(*txn.locks, *missing))
        return super()._judge(locked, touched, writes)

    def _own_lock(self, key: str) -> str | RangeRead | None:
        """Return the lock that a verdict names, if a constraint of ours wants it."""
        if key.startswith(UNIQUE_PREFIX):
            return key if key.startswith(self._own_indexes) else None
        return RangeRead(Range(prefix=key)) if key.startswith(self._own_counted) else None


def _follow_up(raw: bytes | None) -> tuple[str, int] | None:
    """The module of a follow-up, and its number there; None: the record is none."""
    if raw is None or not raw.startswith(FOLLOW_UP_MARK):
        return None
    record = decode(raw)
    if not isinstance(record, Transaction) or record.call is UNSET:
        return None
    batch = record.call.batch
    return None if batch is UNSET else (record.call.module, batch.number)
