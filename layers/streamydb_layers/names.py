"""Names of collections, queues and boards, and ids within them: what may be part of a key."""

from __future__ import annotations

import re
from typing import Final

from streamydb_layers.errors import InvalidNameError

ID_BYTES_MAX: Final = 128
"""UTF-8 bytes of the id of a document, an item or a member."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_name(name: str) -> str:
    """Return a name that may stand in the middle of a key. Raises InvalidNameError: it may not."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidNameError("A name has 1 to 64 letters, digits, dots, dashes or underscores.")
    return name


def check_id(text: str) -> str:
    """Return an id that may stand at the end of a key. Raises InvalidNameError: it may not."""
    try:
        size = len(text.encode()) if isinstance(text, str) else 0
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= ID_BYTES_MAX:
        raise InvalidNameError(f"An id is text of 1 to {ID_BYTES_MAX} bytes of UTF-8.")
    return text
