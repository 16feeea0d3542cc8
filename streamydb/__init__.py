"""A strictly serializable, transactional key-value database made of Kafka and Spark.

Nothing in it decides at run time: the log decides, and everything after the log is a pure function
of it. The rooms of the package follow a transaction on its way: `kafka` appends it to the log,
`sequencer` closes the log's milliseconds, `sorter` puts the log into one total order and plans it,
`key_processor` holds values and locks, `txn_processor` executes, and results and changes go out
through Kafka. `pipeline` hosts all that on Spark; `read_model`, `facade` and `client` read and ask;
`verify` proves. No room imports from one above it (pyproject.toml, `tool.importlinter`).

Public names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamydb.client import connect, connect_async
    from streamydb.errors import ConfigurationError, InvariantViolation, StreamyError
    from streamydb.kafka.streams import follow
    from streamydb.local.broker import EmbeddedBroker
    from streamydb.settings import Settings

__all__ = [
    "ConfigurationError",
    "EmbeddedBroker",
    "InvariantViolation",
    "Settings",
    "StreamyError",
    "__version__",
    "connect",
    "connect_async",
    "follow",
]

__version__ = "0.2.0"

_HOMES = {
    "ConfigurationError": "streamydb.errors",
    "EmbeddedBroker": "streamydb.local.broker",
    "InvariantViolation": "streamydb.errors",
    "Settings": "streamydb.settings",
    "StreamyError": "streamydb.errors",
    "connect": "streamydb.client",
    "connect_async": "streamydb.client",
    "follow": "streamydb.kafka.streams",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use (PEP 562)."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
