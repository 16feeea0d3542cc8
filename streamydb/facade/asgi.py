"""The types of ASGI (version 3) that pass between the server and the facade."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An application; servers and frameworks each have types of their own for what it is called with.
"""

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values, as they are sent; names in small letters."""
