"""The names of a database's topics."""

from __future__ import annotations

from streamydb.limits import DATABASE_NAME


class TopicNames:
    """The names of a database's topics.
    Raises ValueError: the database's name breaks the rule for names.
    """

    def __init__(self, database: str) -> None:
        if not DATABASE_NAME.fullmatch(database):
            raise ValueError(
                f"{database!r} cannot be a database's name: take a lower-case letter, then "
                "up to 47 lower-case letters, digits and hyphens"
            )
        self.database = database
        self.transactions = f"{database}.transactions"  # the log: clients append transactions
        self.results = f"{database}.results"  # a verdict for every transaction
        self.changes = f"{database}.changes"  # every write of every committed transaction
        self.connect = f"{database}.connect"  # the copy of the changes, see `kafka.connect`
        self.feedback = f"{database}.feedback"  # from the execution to the shards; internal
        self.deadletters = f"{database}.deadletters"  # what could not be decoded or executed
        self.streams = f"{database}.streams"  # the records that procedures emit, by stream
        self.digests = f"{database}.digests"  # of the state: pipelines compare theirs
        self.control = f"{database}.control"  # between pipelines: who leads, how far it is
        self.founding = f"{database}.founding"  # its founding facts, see `kafka.foundation`
        self.rulings = f"{database}.rulings"  # aborted by internal faults, see `records.rulings`

    def feedback_of(self, pipeline: str) -> str:
        """The feedback of a pipeline with a name; each has a topic of its own."""
        return f"{self.feedback}.{pipeline}" if pipeline else self.feedback

    def all(self) -> tuple[str, ...]:
        """Return the names of what every database has, the log first."""
        return (self.transactions, self.results, self.changes, self.feedback, self.deadletters)

    def beside(self) -> tuple[str, ...]:
        """Return the names of what a pipeline makes when it starts, with those that are shared."""
        return (self.streams, *self.shared(), self.founding, self.rulings)

    def shared(self) -> tuple[str, ...]:
        """Return the names of what pipelines over one log share; made when one is missing."""
        return (self.control, self.digests)
