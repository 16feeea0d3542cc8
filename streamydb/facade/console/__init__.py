"""The web console: one page, served by the facade, that shows a database and lets one use it.

In: the facade's services. Out: endpoints of the page's files (`/`, `/console/*`), of the figures it
draws (`/v1/stats`), of a key's history (`/v1/history/*`), of the pipelines (`/v1/pipelines`).

Invariants: the page loads nothing from elsewhere and inserts what it is sent as text only; figures
of the change feed are taken only while somebody looks, and of a bounded part of the changes; no
client is shown a key that it may not read.

`traffic` and `contention` are pure; `sampler` feeds them; the files are in `static/`.
"""

from __future__ import annotations

from streamydb.facade.console.sampler import Console

__all__ = ["Console"]
