"""Collections for both clients: they run the core's flows."""

from __future__ import annotations

from streamydb.client import AsyncClient, AsyncView, Client, View
from streamydb_layers.documents.building import IndexedCore
from streamydb_layers.drivers import (
    awaiting,
    blocking,
    running,
    running_async,
    within,
    within_async,
)


class Collection:
    """A collection of JSON documents, on a blocking client; threads may share it."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.core = IndexedCore(name)

    get = blocking(IndexedCore.get)
    find = blocking(IndexedCore.find)
    indexes = blocking(IndexedCore.indexes)
    create_index = blocking(IndexedCore.create_index)
    drop_index = blocking(IndexedCore.drop_index)
    insert = running(IndexedCore.insert)
    put = running(IndexedCore.put)
    replace = running(IndexedCore.replace)
    patch = running(IndexedCore.patch)
    update = running(IndexedCore.update)
    modify = running(IndexedCore.modify)
    delete = running(IndexedCore.delete)

    def within(self, view: View) -> CollectionView:
        """The collection in a function under `run`: part of its transaction."""
        return CollectionView(view, self.core)


class CollectionView:
    """A collection in a function under `run`."""

    def __init__(self, view: View, core: IndexedCore) -> None:
        self.view, self.core = view, core

    get = within(IndexedCore.look)
    insert = within(IndexedCore.insert)
    put = within(IndexedCore.put)
    replace = within(IndexedCore.replace)
    patch = within(IndexedCore.patch)
    update = within(IndexedCore.update)
    modify = within(IndexedCore.modify)
    delete = within(IndexedCore.delete)


class AsyncCollection:
    """A collection of JSON documents, on a client for coroutines; see `Collection`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.core = IndexedCore(name)

    get = awaiting(IndexedCore.get)
    find = awaiting(IndexedCore.find)
    indexes = awaiting(IndexedCore.indexes)
    create_index = awaiting(IndexedCore.create_index)
    drop_index = awaiting(IndexedCore.drop_index)
    insert = running_async(IndexedCore.insert)
    put = running_async(IndexedCore.put)
    replace = running_async(IndexedCore.replace)
    patch = running_async(IndexedCore.patch)
    update = running_async(IndexedCore.update)
    modify = running_async(IndexedCore.modify)
    delete = running_async(IndexedCore.delete)

    def within(self, view: AsyncView) -> AsyncCollectionView:
        """The collection in a function under `run`: part of its transaction."""
        return AsyncCollectionView(view, self.core)


class AsyncCollectionView:
    """A collection in a coroutine function under `run`."""

    def __init__(self, view: AsyncView, core: IndexedCore) -> None:
        self.view, self.core = view, core

    get = within_async(IndexedCore.look)
    insert = within_async(IndexedCore.insert)
    put = within_async(IndexedCore.put)
    replace = within_async(IndexedCore.replace)
    patch = within_async(IndexedCore.patch)
    update = within_async(IndexedCore.update)
    modify = within_async(IndexedCore.modify)
    delete = within_async(IndexedCore.delete)
