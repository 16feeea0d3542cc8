"""Stored procedures that come with the layers; `python -m streamydb_layers` prints their files."""
