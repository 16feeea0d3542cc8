"""docs/security.md: the table of rights is the one that is granted; the settings exist."""

from __future__ import annotations

import re
from pathlib import Path

from streamydb.kafka import TopicNames
from streamydb.kafka.roles import ROLES, commands, grants
from streamydb.settings import Settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text("utf-8")


def test_the_table_of_rights() -> None:
    rows = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] in ROLES:
            found = {
                topic: tuple(operations.split(", "))
                for topics, operations in (part.split(": ") for part in cells[2].split("; "))
                for topic in re.findall(r"`\.([\w*]+)`", topics)
            }
            groups = () if cells[3] == "-" else tuple(cells[3].split(", "))
            rows[cells[0]] = (cells[1], found, groups)
    assert rows == {name: (r.what, dict(r.topics), r.groups) for name, r in ROLES.items()}
    writers = {name: role.writers for name, role in ROLES.items() if role.writers}
    assert writers == {"connect": ("Describe", "Write")}
    assert "`connect` also needs Describe and Write on the transactional ids `streamydb*`" in PAGE


def test_settings_of_the_example_exist() -> None:
    named = set(re.findall(r"STREAMYDB_([A-Z_]+)=", PAGE))
    assert {name.lower() for name in named} <= set(Settings.model_fields)
    assert "SASL_PASSWORD_FILE" in named


def test_commands_grant_what_is_applied() -> None:
    for role in ROLES:
        lines = commands("kafka:9093", "bank", role, "User:someone")
        granted = {
            (resource, operation)
            for line in lines
            for resource in re.findall(r"--(?:topic|group|transactional-id) (\S+)", line)
            for operation in re.findall(r"--operation (\w+)", line)
        }
        assert granted == {(each.name, each.operation) for each in grants("bank", role)}
        assert all("--allow-principal User:someone" in line for line in lines)
        prefixed = {each.name for each in grants("bank", role) if each.prefixed}
        for line in lines:
            told = "--resource-pattern-type prefixed" in line
            assert told == any(f" {name} " in line for name in prefixed)


def test_every_topic_is_somebodys_and_none_is_invented() -> None:
    names = TopicNames("bank")
    known = (
        *names.all(), *names.shared(), names.connect, names.streams, names.founding,
        names.rulings,
    )  # fmt: skip
    topics = {topic.removeprefix("bank.") for topic in known}
    assert set(ROLES["admin"].topics) == topics
    assert set(ROLES["pipeline"].topics) == topics - {"connect"}
    assert all({each.rstrip("*") for each in role.topics} <= topics for role in ROLES.values())
