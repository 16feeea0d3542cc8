"""Ports of this machine: whether they are free, and how they are written."""

from __future__ import annotations

import secrets
import socket

# Below the range from which systems take the ports of outgoing connections (from 32768 on Linux,
# from 49152 on macOS). A port of that range may be lost to a client while the broker restarts: a
# client that retries on the loopback device can even connect to itself, and then holds the port.
_FIRST, _LAST = 20_000, 32_000
_ATTEMPTS_MAX = 200


def free_port(host: str = "127.0.0.1", *, besides: int = 0) -> int:
    """Return a port that nobody listens on at this address, other than `besides`.
    Raises OSError: no free port was found.
    """
    for _ in range(_ATTEMPTS_MAX):
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        if port != besides and is_free(port, host):
            return port
    msg = f"No free port found on {host} between {_FIRST} and {_LAST}. Name one with --port."
    raise OSError(msg)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def authority(host: str, port: int) -> str:
    """Return `host:port` as Kafka and URLs have it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
