"""Linearizability of single keys: registers with read, write, compare-and-set and delete.

The search is that of Wing and Gong (1993) with Lowe's memoisation of configurations ("Testing for
linearizability", 2017, section 4). Each key is checked alone, as linearizability is local (Herlihy
and Wing 1990, theorem 1). Three observations keep it fast:

- Most violations show in the zones of two values already (`histories.zones`).
- A read (or a refused compare-and-set) that fits the present state may be taken at once: nothing
  later can need it to come later.
- An operation whose outcome is unknown may take effect at any time after its invocation, or never.
  It is taken only directly before an operation that is impossible without it; anywhere else nobody
  could tell. Values are unique, so there is hardly a choice which one that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from histories.records import (
    Get,
    History,
    Operation,
    ReadOperation,
    ScanOperation,
    Seen,
    WriteOperation,
    frozen,
)
from histories.steps import RegisterStep
from histories.violations import Anomaly, shown
from histories.zones import Clash, clashing

__all__ = ["CONFIGURATIONS_MAX", "check_registers", "linearize", "register_steps"]

CONFIGURATIONS_MAX: Final = 500_000
"""Configurations that are looked at for one key before the search gives up."""

_SHOWN: Final = 12


class _Configuration(NamedTuple):
    """A point of the search: which completed steps have happened, which pending ones, the state.

    All completed steps before `low` have happened; bit i of `bits` is step `low + i`.
    """

    low: int
    bits: int
    used: int
    state: str | None


class _Search:
    """The search for one key."""

    def __init__(self, steps: Sequence[RegisterStep]) -> None:
        ordered = sorted(steps, key=lambda step: step.invoked_ns)
        self.completed = [step for step in ordered if step.returned_ns is not None]
        self.pending = [s for s in ordered if s.returned_ns is None and s.kind in {"write", "set"}]
        looked_for = {s.value for s in ordered if s.kind == "read"}
        looked_for |= {s.expected for s in ordered if s.kind in {"set", "refused"}}
        self._observed = looked_for
        self._producers: dict[str | None, list[int]] = {}
        for place, step in enumerate(self.pending):
            self._producers.setdefault(step.value, []).append(place)
        for places in self._producers.values():  # those that need nothing first
            places.sort(key=lambda place: self.pending[place].kind == "set")
        self.deepest = _Configuration(0, 0, 0, None)

    def candidates(self, at: _Configuration) -> tuple[list[int], int]:
        """Completed steps that may come next, and the time by which one of them must have."""
        found: list[int] = []
        earliest = -1
        for place in range(at.low, len(self.completed)):
            if at.bits >> (place - at.low) & 1:
                continue
            step = self.completed[place]
            if found and step.invoked_ns > earliest:
                break
            end = step.returned_ns or 0
            earliest = min(earliest, end) if found else end
            found.append(place)
        return found, earliest

    def following(self, at: _Configuration) -> Iterator[_Configuration]:
        """The configurations that come next, the most promising first."""
        places, latest_ns = self.candidates(at)
        for place in places:
            step = self.completed[place]
            if step.kind in {"read", "refused"} and step.enabled(at.state):
                yield self._done(at, place, at.used, at.state)
                return  # taking it at once is never wrong
        steps = [self.completed[place] for place in places]
        wanted = {s.value for s in steps if s.kind == "read"}
        wanted |= {s.expected for s in steps if s.kind == "set"}
        places.sort(key=lambda p: (self.completed[p].value not in wanted, self._end(p)))
        for place in places:
            step = self.completed[place]
            if step.enabled(at.state):
                yield self._done(at, place, at.used, step.after(at.state))
        for place in places:
            step = self.completed[place]
            if not step.enabled(at.state):
                for used, state in self._helped(step, at, latest_ns):
                    yield self._done(at, place, used, step.after(state))

    def _helped(
        self, step: RegisterStep, at: _Configuration, latest_ns: int
    ) -> Iterator[tuple[int, str | None]]:
        """States in which a step can happen, made by pending steps that are taken for it."""
        if step.kind != "refused":
            wanted = step.value if step.kind == "read" else step.expected
            yield from ((used, wanted) for used in self._made(wanted, at, latest_ns, set()))
            return
        tried: set[tuple[str, str | None]] = set()
        for place, helper in enumerate(self.pending):  # anything that changes it
            if helper.invoked_ns > latest_ns:
                return
            made = helper.value if helper.value in self._observed else "unseen"
            known = (helper.kind, made) in tried or at.used >> place & 1
            if not known and helper.value != step.expected and helper.enabled(at.state):
                tried.add((helper.kind, made))
                yield at.used | 1 << place, helper.value

    def _made(
        self, value: str | None, at: _Configuration, latest_ns: int, tried: set[str | None]
    ) -> Iterator[int]:
        """Ways to come to a value by pending steps alone; no way passes a value twice."""
        tried = {*tried, value}
        for place in self._producers.get(value, ()):
            helper = self.pending[place]
            if at.used >> place & 1 or helper.invoked_ns > latest_ns:
                continue
            if helper.enabled(at.state):
                yield at.used | 1 << place
                if helper.kind == "write":
                    return  # the others of this value do no more than this one
            elif helper.expected not in tried:
                ways = self._made(helper.expected, at, latest_ns, tried)
                yield from (used | 1 << place for used in ways)

    def _end(self, place: int) -> int:
        return self.completed[place].returned_ns or 0

    def _done(self, at: _Configuration, place: int, used: int, state: str | None) -> _Configuration:
        """The configuration after a completed step."""
        low, bits = at.low, at.bits | 1 << (place - at.low)
        while bits & 1:
            low, bits = low + 1, bits >> 1
        return _Configuration(low, bits, used, state)

    def run(self, configurations_max: int) -> bool | None:
        """Return True if there is an order; None if the search gave up."""
        start = _Configuration(0, 0, 0, None)
        seen: dict[tuple[int, int, str | None], list[int]] = {}
        count = 0
        stack = [self.following(start)]
        if not self.completed:
            return True
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                continue
            if following.low == len(self.completed):
                return True
            used_before = seen.setdefault((following.low, following.bits, following.state), [])
            if any(used & following.used == used for used in used_before):
                continue  # it was reached with less
            used_before.append(following.used)
            count += 1
            if count > configurations_max:
                return None
            if following.low + following.bits.bit_count() > (
                self.deepest.low + self.deepest.bits.bit_count()
            ):
                self.deepest = following
            stack.append(self.following(following))
        return False


def linearize(
    steps: Sequence[RegisterStep], configurations_max: int = CONFIGURATIONS_MAX
) -> tuple[bool | None, list[RegisterStep], str | None]:
    """Tell whether the steps on one register, absent at first, can be put in a legal order.

    Returns:
        Whether they can (None: undecided within the bound), and for the deepest order that was
        found the steps one of which must come next, and the state there.
    """
    search = _Search(steps)
    fits = search.run(configurations_max)
    stuck, _ = search.candidates(search.deepest)
    return fits, [search.completed[place] for place in stuck], search.deepest.state


def register_steps(history: History) -> dict[str, list[RegisterStep]]:
    """Return the steps on each key that is written by `WriteOperation`; stale reads are left
    out.
    """
    keys = {op.request.key for op in history.operations if isinstance(op.request, WriteOperation)}
    steps: dict[str, list[RegisterStep]] = {key: [] for key in keys}
    for operation in history.operations:
        if operation.outcome == "failed":
            continue
        if isinstance(operation.request, WriteOperation):
            steps[operation.request.key].append(_write_step(operation, operation.request))
            continue
        for key, step in _read_steps(operation, keys):
            steps[key].append(step)
    return steps


def check_registers(
    history: History, configurations_max: int = CONFIGURATIONS_MAX
) -> list[Anomaly]:
    """Find keys whose writes and strong reads are not linearizable."""
    found = []
    for key, steps in sorted(register_steps(history).items()):
        clash = clashing(steps)
        if clash is not None:
            found.append(_clash(history, key, clash))
            continue
        fits, stuck, state = linearize(steps, configurations_max)
        if fits:
            continue
        name = "undecided" if fits is None else "not-linearizable"
        what = (
            f"{key}: no order of its {len(steps)} operations explains what clients saw. "
            f"The longest that does so far leaves {state or 'nothing'}, and then none of these can "
            "come next (nor after what is unknown):"
        )
        lines = [what]
        lines += [shown(history.operations[step.operation]) for step in stuck[:_SHOWN]]
        found.append(Anomaly(name, "\n  ".join(lines), tuple(step.operation for step in stuck)))
    return found


def _clash(history: History, key: str, clash: Clash) -> Anomaly:
    """Steps of two values that must each have been there at one and the same time."""
    lines = [f"{key}: {clash.why}", *(shown(history.operations[s.operation]) for s in clash.steps)]
    places = tuple(step.operation for step in clash.steps)
    return Anomaly("not-linearizable", "\n  ".join(lines), places)


def _write_step(operation: Operation, request: WriteOperation) -> RegisterStep:
    value = frozen(request.value)
    end = operation.returned_ns if operation.outcome == "ok" else None
    if request.expected is None:
        return RegisterStep("write", operation.invoked_ns, end, value, None, operation.index)
    refused = operation.told is not None and not operation.told.committed
    expected = frozen(request.expected.value)
    kind: Literal["set", "refused"] = "refused" if refused else "set"
    return RegisterStep(kind, operation.invoked_ns, end, value, expected, operation.index)


def _read_steps(operation: Operation, keys: set[str]) -> Iterator[tuple[str, RegisterStep]]:
    """Yield the values of each register in a strong read;
    a scan also says which ones are absent.
    """
    request, answer = operation.request, operation.told
    if not isinstance(request, Get | ReadOperation | ScanOperation) or answer is None:
        return
    if request.consistency != "strong":
        return
    about = keys & answer.seen.keys()
    if isinstance(request, ScanOperation):
        about |= {key for key in keys if key.startswith(request.prefix)}
    for key in sorted(about):
        value = frozen(answer.seen.get(key, Seen()).value)
        yield (
            key,
            RegisterStep(
                "read", operation.invoked_ns, operation.returned_ns, value, None, operation.index
            ),
        )
