"""`python -m streamydb.cli` is `streamydb`."""

from __future__ import annotations

from streamydb.cli import app

app()
