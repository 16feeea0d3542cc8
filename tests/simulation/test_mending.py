"""Checkpoints after any damage: a start goes on after the newest whole batch, or is refused.

Spark's part is a model (`tests.support.checkpoints`); what mends is production's. A state that was
put together of two histories, or that does not belong to the offsets, fails the test.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.errors import ConfigurationError
from streamydb.pipeline.repair import Resumption, mend
from tests.support.checkpoints import SparkQuery, SparkRefuses, read_from, with_sums, written_to
from tests.support.seeds import seeds

SEEDS = seeds(40, 20)
CHUNKS = 4
DRAFT = SparkQuery(random.Random(0), [])
"""Reads files that a test hands to it."""


class Damaged:
    """A query whose folder was damaged, again and again."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = random.Random(f"mending {seed}")
        self.operators, self.shards = self.dice.choice([1, 1, 2]), self.dice.choice([1, 1, 2, 3])
        self.checkpoint = folder / str(seed)
        stores = [f"state/{o}/{s}" for o in range(self.operators) for s in range(self.shards)]
        self.query = SparkQuery(self.dice, stores)
        self.query.run(self.dice.randint(1, 12))
        self.seen: Counter[str] = Counter()
        self.disk: dict[str, bytes] = {}
        self.past: list[dict[str, bytes]] = []
        self.foreign = self.struck = False

    def strike(self) -> None:
        """Something happens to the folder while the pipeline stands still,
        or while it is copied.
        """
        self.struck = True
        kinds = [self.cut, self.cut, self.forget, self.decay, self.copy, self.copy, self.swap]
        if self.dice.random() < 0.9:
            self.dice.choice(kinds)()

    def cut(self) -> None:
        """A power cut: some of the newest files were not synced."""
        newest = [
            name
            for before, after in zip(self.query.moments, self.query.moments[1:], strict=False)
            for name in after
            if after[name] is not before.get(name)
        ]
        self._damage(list(dict.fromkeys(newest[-12:])), self.dice.randint(1, 4))

    def forget(self) -> None:
        """Most of what says which batches there were is damaged."""
        logs = [name for name in self.query.files if name.startswith(("offsets/", "commits/"))]
        self._damage(logs, self.dice.randint(1, len(logs) + 1))

    def decay(self) -> None:
        """A disk or a hand damages any files."""
        self._damage(list(self.query.files), self.dice.randint(1, 6))

    def copy(self) -> None:
        """The folder is a copy that was taken while it ran: listed and read part by part."""
        at = self.dice.randrange(len(self.query.moments))
        found = {}
        for part in self.dice.sample(self._parts(), len(self._parts())):
            listed = self.query.moments[at]
            at = min(at + self.dice.choice([0, 0, 1, 4]), len(self.query.moments) - 1)
            read = self.query.moments[at]
            at = min(at + self.dice.choice([0, 0, 2, 9]), len(self.query.moments) - 1)
            found.update({
                name: read[name] for name in listed if name.startswith(part) and name in read
            })  # fmt: skip
        self.query.files = found

    def swap(self) -> None:
        """Parts of the folder are those of an older copy, perhaps from before it was mended."""
        self.foreign = self.foreign or bool(self.past)
        for part in self.dice.sample(self._parts(), self.dice.randint(1, 2)):
            older = self.dice.choice([*self.past, *self.query.moments])
            kept = {n: data for n, data in self.query.files.items() if not n.startswith(part)}
            self.query.files = {**kept, **{n: older[n] for n in older if n.startswith(part)}}

    def _parts(self) -> list[str]:
        return ["metadata", "offsets/", "commits/", *(f"{each}/" for each in self.query.stores)]

    def _damage(self, names: list[str], count: int) -> None:
        whole = [name for name in names if name in self.query.files and "/." not in name]
        for name in self.dice.sample(whole, min(count, len(whole))):
            data, sums = self.query.files[name], list(with_sums(name, b""))[1]
            kind = self.dice.choice(["empty", "empty with its sums", "torn", "gone", "all gone"])
            gone = {"gone": {name}, "all gone": {name, sums}}.get(kind, set())
            left = {n: each for n, each in self.query.files.items() if n not in gone}
            if kind == "torn":
                left[name] = data[: self.dice.randrange(max(1, len(data)))]
            elif kind.startswith("empty"):
                left[name] = b""
                left.update({sums: b""} if "sums" in kind and sums in left else {})
            self.query.files = left

    def newest_whole(self) -> int | None:
        """The newest batch after which the files let Spark go on, tried one by one."""
        known = [int(n[8:]) for n in self.query.files if re.fullmatch(r"(offsets|commits)/\d+", n)]
        for batch in range(max(known, default=-1), -1, -1):
            files = dict(self.query.files)
            if not self._reads(files, f"commits/{batch}"):
                files.pop(f"commits/{batch}", None)
                if not self._reads(files, f"offsets/{batch + 1}"):
                    continue
            kept = {
                name: data
                for name, data in files.items()
                if not (name.startswith("offsets/") and name[8:].isdigit()
                        and (int(name[8:]) > batch + 1 or not self._reads(files, name)))
                and not (name.startswith("commits/") and name[8:].isdigit()
                         and int(name[8:]) > batch)
            }  # fmt: skip
            DRAFT.files = kept
            try:
                start = DRAFT.start()
            except SparkRefuses:
                continue
            if start.batch == batch + 1 and all(map(self._loads(batch + 1), self.query.stores)):
                return batch
        return -1 if max(known, default=-1) <= 0 else None

    def _reads(self, files: dict[str, bytes], name: str) -> bool:
        DRAFT.files = files
        try:
            DRAFT._json(name)
        except SparkRefuses:
            return False
        return True

    def _loads(self, version: int) -> Callable[[str], bool]:
        """Whether some snapshot of a store, or none, leads to a version."""

        def loads(store: str) -> bool:
            for base in range(version, -1, -1):
                DRAFT.files = {
                    name: data
                    for name, data in self.query.files.items()
                    if not (name.startswith(store) and name.endswith(".zip"))
                    or name == f"{store}/{base}.zip"
                }
                if base and f"{store}/{base}.zip" not in DRAFT.files:
                    continue
                try:
                    DRAFT.load(store, version)
                except SparkRefuses:
                    continue
                return True
            return False

        return loads

    def mended(self) -> Resumption | None:
        """What production makes of it; None: it was refused, as it has to be."""
        query, wanted = self.checkpoint / "query", self.newest_whole()
        for name in self.disk.keys() - self.query.files.keys():
            (query / name).unlink()
        written_to(query, dict(self.query.files.items() - self.disk.items()))
        try:
            found = mend(self.checkpoint, self.shards, self.operators)
        except ConfigurationError as error:
            said = str(error)
            _names_file_and_command(said)
            assert wanted is None, (wanted, said)
            return None
        assert found is not None
        assert found.batch == wanted
        assert mend(self.checkpoint, self.shards, self.operators) == Resumption(found.batch, [], 0)
        self.disk = read_from(query)
        self._kept_aside(found)
        self.query.files = dict(self.disk)
        if found.moved or self.struck:
            self.past += self.query.moments
            self.query.moments = [self.query.files]
        self.struck = False
        return found

    def _kept_aside(self, found: Resumption) -> None:
        """Nothing is lost: what is not in its place any more lies where it was set aside."""
        before, after = self.query.files, self.disk
        folders = sorted(self.checkpoint.glob("damaged-*"), key=lambda each: int(each.name[8:]))
        aside: dict[str, bytes] = {}
        for folder in folders[-2:]:  # the newest one, and that of the query's id
            aside.update(read_from(folder / "query"))
        gone = {name for name in before if after.get(name) != before[name]}
        assert {name: aside.get(name) for name in gone} == {name: before[name] for name in gone}
        moved = {each for name in found.moved for each in with_sums(name, b"")}
        assert gone <= moved | {"metadata", ".metadata.crc"}

    def goes_on(self) -> bool:
        """Start, with states that belong to what was read; whether the shards do not refuse."""
        start = self.query.start()
        reads = []
        for store in self.query.stores:
            value = self.query.load(store, start.batch)
            assert value in self.query.read, f"{store}/{start.batch} is of two histories"
            reads.append(self.query.read[value])
        return set(reads) == {start.begins}


def _names_file_and_command(said: str) -> None:
    assert "`streamydb rebuild`" in said
    named = re.search(r"the checkpoint(?: file)? (\S+)", said)
    assert named is not None
    assert Path(named[1]).exists()


def lived(damaged: Damaged) -> None:
    """One folder's life under damage, until it is refused."""
    for turn in range(9):
        if turn % 3 == 0:
            damaged.strike()
        found = damaged.mended()
        if found is None:
            damaged.seen["refused"] += 1
            return
        damaged.seen["moved" if found.moved else "whole"] += 1
        if not damaged.goes_on():
            assert damaged.foreign, "a state does not belong to the offsets"
            damaged.seen["refused by the shards"] += 1
            return
        damaged.query.run(damaged.dice.randint(1, 4))


@pytest.mark.fault(
    34, "simulated: files emptied, torn or gone; parts of an older copy; copies taken while it ran",
    "goes on after the newest whole batch, or names `streamydb rebuild`; no state of two histories",
)  # fmt: skip
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_damaged_checkpoint_goes_on_whole_or_not_at_all(
    chunk: int, tmp_path: Path, injected: Callable[..., None]
) -> None:
    chosen = range(1 + chunk, SEEDS + 1, CHUNKS)
    injected(len(chosen))
    seen: Counter[str] = Counter()
    for seed in chosen:
        damaged = Damaged(seed, tmp_path)
        try:
            lived(damaged)
        except (AssertionError, SparkRefuses) as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        seen += damaged.seen
    assert seen["moved"], "nothing was damaged"
