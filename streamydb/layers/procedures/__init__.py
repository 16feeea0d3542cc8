"""Stored procedures that come with the layers; `python -m streamydb.layers` prints their files."""
