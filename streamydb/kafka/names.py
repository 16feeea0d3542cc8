"""The names of a database's topics."""

from __future__ import annotations

from dataclasses import dataclass

from streamydb.limits import DATABASE_NAME


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of a database's topics.
    Raises ValueError: the database's name breaks the rule for names.
    """

    database: str

    def __post_init__(self) -> None:
        if not DATABASE_NAME.fullmatch(self.database):
            msg = (
                f"{self.database!r} cannot be a database's name: take a lower-case letter, then "
                "up to 47 lower-case letters, digits and hyphens"
            )
            raise ValueError(msg)

    @property
    def transactions(self) -> str:
        """The log: clients append transactions."""
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
    def connect(self) -> str:
        """The copy of the changes for Kafka Connect; see `streamydb.kafka.connect`."""
        return f"{self.database}.connect"

    @property
    def feedback(self) -> str:
        """Feedback from the execution to the shards; internal."""
        return f"{self.database}.feedback"

    @property
    def deadletters(self) -> str:
        """Records that could not be decoded or executed."""
        return f"{self.database}.deadletters"

    @property
    def streams(self) -> str:
        """The records that procedures emit, by stream."""
        return f"{self.database}.streams"

    @property
    def digests(self) -> str:
        """Digests of the state, by which pipelines find out whether they agree."""
        return f"{self.database}.digests"

    @property
    def control(self) -> str:
        """Messages between pipelines over one log: who leads, how far it is."""
        return f"{self.database}.control"

    @property
    def founding(self) -> str:
        """The founding facts of the database; see `streamydb.kafka.foundation`."""
        return f"{self.database}.founding"

    @property
    def rulings(self) -> str:
        """The transactions that an internal fault has aborted; see `streamydb.records.rulings`."""
        return f"{self.database}.rulings"

    def feedback_of(self, pipeline: str) -> str:
        """The feedback of a pipeline with a name; each has a topic of its own."""
        return f"{self.feedback}.{pipeline}" if pipeline else self.feedback

    def all(self) -> tuple[str, ...]:
        """Return the names of what every database has, the log first."""
        return (self.transactions, self.results, self.changes, self.feedback, self.deadletters)

    def shared(self) -> tuple[str, ...]:
        """Return the names of what pipelines over one log share; made when one is missing."""
        return (self.control, self.digests)
