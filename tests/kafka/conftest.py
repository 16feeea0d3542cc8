"""What the tests of security share: a broker with TLS, and its users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.kafka import create
from streamydb.kafka.roles import ROLES, apply
from streamydb.settings import Settings
from tests.support.secured import ADMIN, SECURED, Secured, shared

SCRAM = "SCRAM-SHA-512"


@pytest.fixture(scope="session")
def secured(run_folder: Path) -> Secured:
    """One broker for all workers: TLS, both mechanisms, nobody may do what was not granted.

    Nothing is ever granted to the user "nobody".
    """
    scram = {**{f"its-{role}": SCRAM for role in ROLES}, "weak": "SCRAM-SHA-256"}
    return shared(run_folder / SECURED, ["nobody", "newcomer"], scram)


@pytest.fixture
def as_role(secured: Secured, database: str) -> Callable[[str], Settings]:
    """Settings of a user who was granted one role on a new database with two partitions."""
    admin = secured.settings(ADMIN, database=database, partitions=2)
    create(admin.client_config(), database, partitions=2)

    def settings(role: str) -> Settings:
        apply(admin.client_config(), database, role, f"User:its-{role}")
        return secured.settings(f"its-{role}", SCRAM, database=database, partitions=2)

    return settings
