"""Generations: the lives of a database's history (pure).

A seq names one transaction as long as the history goes on. A database that was restored, forked or
begun with a snapshot, or whose log has lost its end, gives seqs again that others may know of its
origin. So it is of another *generation*, and who hands a seq out says its generation along: in
entity tags, cursors, ids of events, and answers. What comes back with another one is refused.

A generation is a short text. It follows from Kafka's id of the topic that the new history begins
in, so that it is another one each time, and no clock or chance of ours is in it. A database that
was created has the first one, which is left out wherever it can be.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

FIRST: Final = ""
"""The generation of a database that was created."""

SAID_FIRST: Final = "0"
"""The first generation where it has to be said."""

GENERATION: Final = re.compile(r"[0-9a-z]{1,16}")

_DIGITS: Final = 8


def generation_of(topic_id: str) -> str:
    return hashlib.sha256(topic_id.encode()).hexdigest()[:_DIGITS]


def said(text: str) -> str:
    return FIRST if text == SAID_FIRST else text


def said_as(generation: str) -> str:
    return generation or SAID_FIRST
