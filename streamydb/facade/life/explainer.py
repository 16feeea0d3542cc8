"""Explains transactions to clients: searches for the evidence, so many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from streamydb.errors import StreamyError
from streamydb.facade.about import About
from streamydb.facade.bounds import Limiter
from streamydb.facade.life.core import MetValue, TransactionHistory, explain
from streamydb.facade.life.evidence import Evidence
from streamydb.facade.ports import ReadModel
from streamydb.facade.reads import in_thread
from streamydb.facade.settings import FacadeSettings
from streamydb.records import Result
from streamydb.records.expiry import ending

_NO_KAFKA: Final = dict.fromkeys(
    ("appends", "transaction", "plan", "writes", "resolved", "digests"),
    "there is no Kafka behind this facade",
)


class Explainer:
    """Finds the lives of transactions."""

    def __init__(self, model: ReadModel, settings: FacadeSettings, about: About) -> None:
        self._model = model
        self._about = about
        self._searches = Limiter(
            "searches for explanations", settings.searches_max, settings.client_searches_max
        )
        self._threads = ThreadPoolExecutor(settings.searches_max, "streamydb-explanations")

    async def life(
        self, result: Result, client: str, may_read: Callable[[str], bool] | None
    ) -> TransactionHistory:
        """Return the life of the transaction with a result, its own and not that of a repetition.

        ``client``: the name by which the asker is counted. ``may_read``: as for `explain`.
        Raises ProblemError: too-many-requests, overloaded.
        """
        with self._searches.enter(client):
            return await in_thread(self._life, result, may_read, of=self._threads)

    def _life(self, result: Result, may_read: Callable[[str], bool] | None) -> TransactionHistory:
        find = self._about.evidence
        evidence = Evidence(missing=_NO_KAFKA) if find is None else find(result)

        def look(keys: Sequence[str]) -> Mapping[str, MetValue] | None:
            return self._state_before(result.seq, keys)

        return explain(result, evidence, look, may_read)

    def _state_before(self, seq: int, keys: Sequence[str]) -> Mapping[str, MetValue] | None:
        """Show keys right before a transaction; None if that snapshot is not kept."""
        model = self._model
        if seq == 1:
            return {}
        if not model.oldest() <= seq - 1 <= model.latest().seq:
            return None
        try:
            with model.snapshot(seq - 1) as snapshot:
                pairs = zip(keys, snapshot.get_many(keys), strict=True)
                return {
                    key: MetValue(ending(entry.value, entry.expires_ms), entry.version)
                    for key, entry in pairs if entry is not None
                }  # fmt: skip
        except StreamyError:  # it was collected meanwhile
            return None
