"""The counterparts of a coordinator in memory: the shared topics and the topic of rulings."""

from __future__ import annotations

from streamydb.kafka.shared_topics import DigestRecord
from streamydb.records.control import Message
from streamydb.records.rulings import Fault, Rulings

__all__ = ["Ruled", "Wire"]


class Wire:
    """Stands for the shared topics: what is told and said, and digests that come."""

    silent = False

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.said: list[Message] = []
        self.told_digests: list[tuple[bytes, bytes]] = []
        self.coming: list[Message] = []
        self.begun: list[int] = []
        self.offset = 0

    def ends(self) -> tuple[int, int]:
        return 0, 0

    def begin_at(self, first: int) -> None:
        self.begun.append(first)

    def position(self) -> int:
        return 0

    def poll(self, _timeout_s: float) -> list[Message]:
        coming, self.coming = self.coming, []
        return coming

    def read_digests(self, first: int) -> None:
        assert first == 0

    def digests(self) -> list[DigestRecord]:
        come, self.told_digests = self.told_digests, []
        first, self.offset = self.offset, self.offset + len(come)
        return [DigestRecord(*each, at, 0) for at, each in enumerate(come, first)]

    def say(self, message: Message) -> None:
        self.said.append(message)

    def tell(self, _topic: str, block: bytes) -> int:
        self.told.append(block)
        return len(self.told)


class Ruled:
    """A topic of rulings with so many of them."""

    def __init__(self) -> None:
        self.count, self.fences = 0, list[int]()

    @property
    def epoch(self) -> int:
        return max(self.fences, default=0)

    def refresh(self) -> int:
        return self.count

    def fence(self, epoch: int, _pipeline: str) -> int:
        self.fences.append(epoch)
        return self.count

    def rulings(self) -> Rulings:
        return Rulings(Fault(0, offset, "E") for offset in range(self.count))
