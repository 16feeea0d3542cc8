"""The place in a log from which on each rule holds that a release has added (pure).

What was executed before a release knew a rule must come out the same whenever it is executed again:
by a rebuild, a standby, a restored database, the oracle. So a rule begins at a place in each
partition of the log. It is recorded beside the log when a release that knows the rule first starts
on a database (`streamydb.kafka.foundation`), and travels with the rulings.

A later change of meaning gets a name in `RULES`, and is asked for with `Begins.holds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

__all__ = [
    "CONSTRAINTS_ANYWHERE", "EVERYWHERE", "EXPIRY", "NOWHERE", "RANGES", "RULES",
    "VALUES_BOUNDED", "Begins",
]  # fmt: skip

VALUES_BOUNDED: Final = "values-bounded"
"""What one transaction meets is bounded in bytes: `TRANSACTION_VALUES_BYTES_MAX`."""

CONSTRAINTS_ANYWHERE: Final = "constraints-anywhere"
"""Constraints can be declared in a database that was not created for them."""

RANGES: Final = "ranges"
"""Checks and reads may name ranges; before, a record in which one does is no transaction."""

EXPIRY: Final = "expiry"
"""Updates may say when keys end; before, a record that does is no transaction.

With it came ranges in locks, calls and constraints (`Begins.ranges_anywhere`).
"""

RULES: Final = (
    VALUES_BOUNDED, CONSTRAINTS_ANYWHERE, RANGES, EXPIRY,
)  # fmt: skip


class Begins(msgspec.Struct, frozen=True):
    """The places from which on rules hold.

    ``places``: by the name of a rule, per partition of the log, the first offset where it holds; in
    a partition that is not named, with the first record. A rule that is not named holds nowhere.
    """

    places: dict[str, dict[int, int]] = {}

    def holds(self, rule: str, partition: int, offset: int) -> bool:
        """Return True if a rule holds for a record of the log."""
        place = self.places.get(rule)
        return place is not None and offset >= place.get(partition, 0)

    def rules(self, partition: int, offset: int) -> frozenset[str]:
        """Return the rules that hold for a record of the log."""
        return frozenset(rule for rule in RULES if self.holds(rule, partition, offset))

    def ranges_anywhere(self, partition: int, offset: int) -> bool:
        """Return True if locks, calls and constraints may name ranges, too, in such a record."""
        return self.holds(RANGES, partition, offset) and self.holds(EXPIRY, partition, offset)

    def completed(self, other: Begins) -> Begins:
        """With the places of another one, for the rules that are not named here."""
        return Begins({**other.places, **self.places})

    def missing(self) -> tuple[str, ...]:
        """Return the rules of this release that have no place yet."""
        return tuple(rule for rule in RULES if rule not in self.places)

    def cut(self, ends: Mapping[int, int]) -> Begins:
        """Return the places in a log that holds only what lies before ``ends``, and goes on by all
        rules.
        """
        return Begins({
            rule: {
                partition: min(self.places[rule].get(partition, 0), end)
                if rule in self.places else end
                for partition, end in ends.items()
            }
            for rule in RULES
        })  # fmt: skip


EVERYWHERE: Final = Begins({rule: {} for rule in RULES})
"""All rules hold from the beginning: what a new database has."""

NOWHERE: Final = Begins()
"""No release has begun a rule: what earlier releases have executed."""
