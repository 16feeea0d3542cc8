"""The names of a database's topics."""

from __future__ import annotations

from dataclasses import dataclass

from streamydb.settings import DATABASE_NAME

__all__ = ["TopicNames"]


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of a database's topics.

    Raises:
        ValueError: the database's name breaks the rule for names.
    """

    database: str

    def __post_init__(self) -> None:
        """Refuse a name that is not a database's."""
        if not DATABASE_NAME.fullmatch(self.database):
            msg = (
                f"{self.database!r} cannot be a database's name: take a lower-case letter, then "
                "up to 47 lower-case letters, digits and hyphens"
            )
            raise ValueError(msg)

    @property
    def transactions(self) -> str:
        """What clients append: the log that decides everything."""
        return f"{self.database}.transactions"

    @property
    def results(self) -> str:
        """A verdict for every transaction."""
        return f"{self.database}.results"

    @property
    def changes(self) -> str:
        """Every write of every committed transaction."""
        return f"{self.database}.changes"

    @property
    def feedback(self) -> str:
        """What the execution tells the shards; internal."""
        return f"{self.database}.feedback"

    @property
    def deadletters(self) -> str:
        """Records that could not be decoded or executed."""
        return f"{self.database}.deadletters"

    @property
    def streams(self) -> str:
        """What procedures emit, by stream; made when it is missing."""
        return f"{self.database}.streams"

    def all(self) -> tuple[str, ...]:
        """Return all names, the log first."""
        return (*self.required(), self.streams)

    def required(self) -> tuple[str, ...]:
        """Those without which nothing works; older databases have no more, at first."""
        return (self.transactions, self.results, self.changes, self.feedback, self.deadletters)
