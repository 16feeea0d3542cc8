"""Layers: documents, queues, leaderboards and leases, of keys, transactions and procedures.

A layer is a library over the Python client. It uses what any program can use and needs nothing from
the engine: its keys can be read, watched and changed in other transactions, which are serializable
with its own. `documents` has collections of JSON documents with indexes, `queue` items that
competing workers claim, `leaderboard` members ranked by score, `leases` one holder at a time.
`steps` lets each be written once for blocking and awaiting clients, `tables` has SQL tables.
"""

from __future__ import annotations

__version__ = "0.2.0"
