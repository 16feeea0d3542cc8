"""Members of a control topic that hear each other at once, and a clock."""

from __future__ import annotations

from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import Action, SendMessage, SetRole
from streamydb.records.control import Message

__all__ = ["Room"]


class Room:
    """Pipelines that hear each other at once, and a clock."""

    def __init__(self, **standby: bool) -> None:
        """Members by name; True: as a standby."""
        self.now = 0
        self.said: list[Message] = []
        self.roles: dict[str, list[SetRole]] = {name: [] for name in standby}
        self.members = {
            name: ElectionMember("log", f"id-{name}", name, standby=wanted)
            for name, wanted in standby.items()
        }
        self.down: set[str] = set()

    def begin(self, *names: str) -> None:
        for name in names:
            self.do(name, self.members[name].begin(self.now))

    def do(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SetRole):
                self.roles[name].append(action)
            elif isinstance(action, SendMessage):
                self.said.append(action.message)
                for other, member in self.members.items():
                    if (other not in self.down and member.role != "starting") or other == name:
                        self.do(other, member.hear(action.message, self.now))

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.now += 50
            for name, member in self.members.items():
                if name not in self.down:
                    self.do(name, member.tick(self.now))

    def reach(self, name: str, resolved: int) -> None:
        self.do(name, self.members[name].progress(resolved, resolved, self.now))

    def leaders(self) -> list[str]:
        return [name for name, member in self.members.items() if member.role == "leading"]
