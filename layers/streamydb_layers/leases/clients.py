"""Leases for both clients: they run the core's flows."""

from __future__ import annotations

import secrets
import time

from streamydb.client import AsyncClient, AsyncView, Client, View
from streamydb_layers.drivers import awaiting, blocking, within, within_async
from streamydb_layers.leases.core import Lease, LeaseCore


def _unique() -> str:
    return secrets.token_hex(8)


class Leases:
    """The leases of a group on a blocking client; threads may share it.

    Args:
        client: the database.
        group: which leases; their keys begin with `lease/<group>/`.
    """

    def __init__(self, client: Client, group: str) -> None:
        self.client = client
        self.core = LeaseCore(group, time.monotonic, _unique)

    acquire = blocking(LeaseCore.acquire)
    renew = blocking(LeaseCore.renew)
    release = blocking(LeaseCore.release)
    holder = blocking(LeaseCore.holder)

    def require_in(self, view: View, lease: Lease) -> None:
        """Let a function under `run` commit only if the lease holds then.
        Raises LeaseLostError: the lease is over.
        """
        _InView(view, self.core).require(lease)


class AsyncLeases:
    """Leases on a client for coroutines; see `Leases`."""

    def __init__(self, client: AsyncClient, group: str) -> None:
        self.client = client
        self.core = LeaseCore(group, time.monotonic, _unique)

    acquire = awaiting(LeaseCore.acquire)
    renew = awaiting(LeaseCore.renew)
    release = awaiting(LeaseCore.release)
    holder = awaiting(LeaseCore.holder)

    async def require_in(self, view: AsyncView, lease: Lease) -> None:
        """As `Leases.require_in`. Raises LeaseLostError: the lease is over."""
        await _InAsyncView(view, self.core).require(lease)


class _InView:
    def __init__(self, view: View, core: LeaseCore) -> None:
        self.view, self.core = view, core

    require = within(LeaseCore.require)


class _InAsyncView:
    def __init__(self, view: AsyncView, core: LeaseCore) -> None:
        self.view, self.core = view, core

    require = within_async(LeaseCore.require)
