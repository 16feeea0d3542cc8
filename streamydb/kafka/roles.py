"""The rights in Kafka that each part of a database needs, and nothing more.

`grants` are Kafka's ACLs as data: docs/security.md shows them, `streamydb acls` prints the commands
of `kafka-acls.sh` or applies them, and tests run each role with exactly these. In Kafka, the rights
to read or to write a topic include the right to describe it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from streamydb.kafka.admin import answers, wait_until
from streamydb.kafka.clients import administrator
from streamydb.kafka.names import TopicNames


class AccessRole(NamedTuple):
    """A part of a database, or a kind of user.

    Attributes:
        what: who needs it.
        topics: the operations that it needs on each topic; topics by the last part of their name,
            with * for all that begin so.
        groups: operations on the consumer groups whose names begin with `streamydb`.
        writers: operations on the ids of Kafka transactions that begin so.
    """

    what: str
    topics: Mapping[str, tuple[str, ...]]
    groups: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


class AccessGrant(NamedTuple):
    """One allowed operation."""

    resource: str
    """topic, group or transactional-id."""
    name: str
    operation: str
    prefixed: bool = False


# A consumer of librdkafka asks for the coordinator of its group even when it uses none.
_CONSUMES: Final = ("Describe",)
_READ: Final = ("Read",)
_FOLLOWED: Final = ("Read", "DescribeConfigs")

_MAKES: Final = ("Create", "Describe", "DescribeConfigs", "Alter", "AlterConfigs", "Delete")

_PIPELINE: Final[dict[str, tuple[str, ...]]] = {
    "transactions": ("Read", "Write", "DescribeConfigs"),
    "results": ("Read", "Write", "DescribeConfigs"),
    "changes": ("Read", "Write", "DescribeConfigs"),
    "deadletters": ("Read", "Write", "DescribeConfigs"),
    # What pipelines share; the first one makes them.
    "control": ("Create", "Read", "Write", "DescribeConfigs"),
    "digests": ("Create", "Read", "Write", "DescribeConfigs"),
    "streams": ("Create", "Write", "DescribeConfigs"),
    "founding": ("Create", "Read", "Write", "DescribeConfigs"),
    "rulings": ("Create", "Read", "Write", "DescribeConfigs"),
}

ROLES: Final[Mapping[str, AccessRole]] = MappingProxyType(
    {
        "admin": AccessRole(
            "`streamydb create`, `resize`, `trim`, `restore`, `fork`, `handover`; a person, not a "
            "service",
            dict.fromkeys(
                ("results", "changes", "feedback", "deadletters", "digests", "streams", "connect"),
                _MAKES,
            )
            # A restore that is repeated compares what is in the log already; it also writes how
            # the database began, and its rulings. A hand-over is asked for in `control`.
            | {
                "transactions": (*_MAKES, "Read"),
                "control": (*_MAKES, "Write"),
                "founding": (*_MAKES, "Read", "Write"),
                "rulings": (*_MAKES, "Read", "Write"),
            },
            _CONSUMES,
        ),
        "pipeline": AccessRole(
            "`streamydb pipeline`: driver and executors",
            _PIPELINE | {"feedback": ("Read", "Write", "Delete", "DescribeConfigs")},
            _CONSUMES,
        ),
        "standby": AccessRole(
            "`streamydb pipeline --standby` (or with a `--name`), which has a feedback topic more",
            _PIPELINE | {"feedback*": ("Create", "Read", "Write", "Delete", "DescribeConfigs")},
            _CONSUMES,
        ),
        "sequencer": AccessRole(
            "`streamydb sequencer`", {"transactions": ("Read", "Write")}, _CONSUMES
        ),
        "read-model": AccessRole(
            "`streamydb read-model`",
            {"changes": _FOLLOWED, "founding": _READ, "transactions": ("Describe",)},
            _CONSUMES,
        ),
        "connect": AccessRole(
            "`streamydb connect`",
            {"changes": _FOLLOWED, "connect": ("Read", "Write", "DescribeConfigs")},
            _CONSUMES,
            ("Describe", "Write"),
        ),
        "facade": AccessRole(
            "`streamydb serve`, programs with `kafka://`",
            {
                "transactions": ("Read", "Write"),
                "results": _READ,
                "changes": _READ,
                "streams": _READ,
                # What is told of pipelines and their plans; without these rights that is said.
                "control": _READ,
                "digests": _READ,
                "feedback": _READ,
            },
            _CONSUMES,
        ),
        "client": AccessRole(
            "`streamydb txn`; programs that append to the log and wait for results",
            {"transactions": ("Write",), "results": _READ},
            _CONSUMES,
        ),
        "auditor": AccessRole(
            "`streamydb check`, `watch`, `backup`; reads everything, writes nothing",
            {
                "transactions": _FOLLOWED,
                "results": _FOLLOWED,
                "changes": _FOLLOWED,
                "feedback": _FOLLOWED,
                "deadletters": _FOLLOWED,
                "digests": _READ,
                "control": _READ,
                "founding": _READ,
                "streams": _FOLLOWED,
                "rulings": _READ,
            },
            _CONSUMES,
        ),
    }
)
"""All roles, by name."""

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_GROUPS: Final = "streamydb"


def grants(database: str, role: str) -> list[AccessGrant]:
    """Return what a role needs on a database. Raises KeyError: there is no such role."""
    access = ROLES[role]
    TopicNames(database)  # refuses a name that is none
    all_grants = [
        AccessGrant("topic", f"{database}.{topic.rstrip('*')}", operation, topic.endswith("*"))
        for topic, operations in access.topics.items()
        for operation in operations
    ]
    for kind, operations in (("group", access.groups), ("transactional-id", access.writers)):
        all_grants += [
            AccessGrant(kind, _GROUPS, operation, prefixed=True) for operation in operations
        ]
    return all_grants


def commands(bootstrap: str, database: str, role: str, principal: str) -> list[str]:
    """Return the commands of Kafka's own tool that grant a role, a line for each resource.

    The name of a user of certificates has commas, and often spaces; it is quoted for a shell.
    """
    broker, whom = shlex.quote(bootstrap), shlex.quote(principal)
    lines: dict[str, list[str]] = {}
    for grant in grants(database, role):
        kind = " --resource-pattern-type prefixed" if grant.prefixed else ""
        where = f"--{grant.resource} {grant.name}{kind}"
        lines.setdefault(where, []).append(f"--operation {grant.operation}")
    return [
        f"kafka-acls.sh --bootstrap-server {broker} --command-config admin.properties "
        f"--add --allow-principal {whom} {' '.join(operations)} {where}"
        for where, operations in lines.items()
    ]


def apply(client_config: Mapping[str, str], database: str, role: str, principal: str) -> int:
    """Grant a role to a principal ("User:alice"), wait until a broker knows it, and return how
    many operations it has. Repeatable.

    The controller answers before the brokers have read what it wrote. Until then they would refuse
    the principal.
    Raises TopicsError: the cluster refuses, has no authorizer, or does not answer.
    """
    bindings = {_binding(grant, principal): _said(grant) for grant in grants(database, role)}
    admin = administrator(client_config)
    asked = admin.create_acls(list(bindings))
    answers({bindings[each]: done for each, done in asked.items()}, f"let {principal}")
    every = _every_binding(principal)

    def known() -> bool:
        shown = answers({"rights": admin.describe_acls(every)}, "describe")["rights"]
        return set(bindings) <= set(shown)

    wait_until(known, f"a broker to know the rights of {principal}")
    return len(bindings)


def _every_binding(principal: str) -> AclBindingFilter:
    """The filter that all rights of a principal pass."""
    return AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        principal,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def _said(grant: AccessGrant) -> str:
    names = f"{grant.resource}s that begin with" if grant.prefixed else grant.resource
    return f"{grant.operation} {names} {grant.name}"


def _binding(grant: AccessGrant, principal: str) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in grant.operation)
    return AclBinding(
        _TYPES[grant.resource],
        grant.name,
        pattern,
        principal,
        "*",
        AclOperation[words.strip("_").upper()],
        AclPermissionType.ALLOW,
    )
