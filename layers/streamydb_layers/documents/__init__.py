"""Collections of JSON documents with secondary indexes, kept in the same transaction.

    users = Collection(client, "users")
    users.create_index("by_city", ["address.city", "-born"])
    ann = users.insert({"name": "Ann", "born": 1990, "address": {"city": "Bonn"}})
    users.update(ann, set={"address.city": "Berlin"}, inc={"visits": 1})
    page = users.find("by_city", equals=["Berlin"], ge=1980)

In: documents, updates, queries. Out: documents in the order of an index, at one snapshot.
Invariants: a ready index has exactly the documents that have its fields, at every snapshot; a
unique one has each value once; encoded keys sort like the values.
"""

from __future__ import annotations

from streamydb_layers.documents.changes import merge_patch
from streamydb_layers.documents.clients import (
    AsyncCollection,
    AsyncCollectionView,
    Collection,
    CollectionView,
)
from streamydb_layers.documents.core import PAGE_DOCUMENTS_MAX, Found, Page
from streamydb_layers.documents.indexes import FIELDS_MAX, INDEXES_MAX

__all__ = [
    "FIELDS_MAX",
    "INDEXES_MAX",
    "PAGE_DOCUMENTS_MAX",
    "AsyncCollection",
    "AsyncCollectionView",
    "Collection",
    "CollectionView",
    "Found",
    "Page",
    "merge_patch",
]
