"""`/v1/stats`: the figures that the console draws."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.answer import Answer, unkept_json
from streamydb.facade.auth import Caller
from streamydb.facade.console.sampler import WINDOW_S, Figures, Sampler
from streamydb.facade.queries import StatsQuery
from streamydb.facade.request import Request
from streamydb.local.folder import PipelineStatus

_HOT_KEYS_SHOWN: Final = 15
_FRESH_S: Final = 5


class _Sample(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One second, by its end; what is left out is not known, or did not happen."""

    t_ms: int
    requests_per_s: int
    errors_per_s: int = 0
    write_p50_ms: float | None = None
    write_p99_ms: float | None = None
    read_p50_ms: float | None = None
    read_p99_ms: float | None = None
    transactions_per_s: float | None = None
    watermark_age_ms: int | None = None
    log_lag: int | None = None
    batch_ms: float | None = None
    pipeline_lag: int | None = None


async def get_stats(request: Request, query: StatsQuery) -> Answer:
    """Show the figures of the last minutes, second by second.

    Requests and latencies are those of this facade. Hot keys and conflict groups are estimated
    from the changes of the last minute; groups are told to tokens that may read all. What is
    not asked for is not measured: lag, age, keys and groups begin with the first question.
    """
    console = request.console
    console.sampler.ask()
    shown = stats_of(console.sampler, request.client, time.time(), query.after_ms or 0)
    shown["database"] = console.database
    shown["health"] = await request.services.health.report()
    return unkept_json(msgspec.json.encode(shown))


def stats_of(sampler: Sampler, client: Caller, now: float, after_ms: int) -> dict[str, Any]:
    """Return what a client is shown at the time `now`."""
    model = sampler.services.model
    latest, last = model.latest(), sampler.figures[-1] if sampler.figures else None
    status = None if last is None else last.status
    return {
        "now_ms": int(1000 * now),
        "window_s": WINDOW_S,
        "seq": latest.seq,
        "ts_ms": latest.ts_ms,
        "oldest": _oldest(sampler),
        "client": {"name": client.name, "scopes": client.scopes},
        "pipeline": None if status is None else _pipeline(status, now),
        "samples": _samples(sampler, int(now), after_ms),
        **_contention(sampler, client, int(now)),
    }


def _oldest(sampler: Sampler) -> int | None:
    try:
        return sampler.services.model.oldest()
    except StreamyError:
        return None


def _pipeline(status: PipelineStatus, now: float) -> dict[str, Any]:
    """Return the pipeline's status; of one that follows, also whether it is ready, and how far."""
    updated_ms = status.updated_ms
    age_ms = None if updated_ms is None else max(0, int(1000 * now) - updated_ms)
    answer: dict[str, Any] = {"state": status.state, "status_age_ms": age_ms}
    if status.role is not None:
        answer["role"] = status.role
    if status.role == "following":
        answer |= {"ready": status.ready, "lag_ms": status.lag_ms, "behind": status.behind}
    return answer


def _samples(sampler: Sampler, second: int, after_ms: int) -> list[_Sample]:
    """The samples of the window that are complete: up to where figures are, if they are taken.

    Times after `second` are of a clock that has been set back since.
    """
    figures = {taken.second: taken for taken in sampler.figures if taken.second <= second}
    newest = max(figures, default=0)
    last = newest if second - newest <= _FRESH_S else second - 1
    began = sampler.began if sampler.began <= second else 0
    first = max(second - WINDOW_S, after_ms // 1000, began)
    return [_sample(sampler, each, figures.get(each)) for each in range(first, last + 1)]


def _sample(sampler: Sampler, second: int, taken: Figures | None) -> _Sample:
    slot = sampler.traffic.of(second)
    sample = _Sample(
        t_ms=1000 * (second + 1),
        requests_per_s=slot.requests,
        errors_per_s=slot.errors,
        write_p50_ms=slot.latency_ms("write", 0.5),
        write_p99_ms=slot.latency_ms("write", 0.99),
        read_p50_ms=slot.latency_ms("read", 0.5),
        read_p99_ms=slot.latency_ms("read", 0.99),
    )
    if taken is not None:
        sample.transactions_per_s = taken.transactions_per_s
        sample.watermark_age_ms = taken.watermark_age_ms
        sample.log_lag = taken.log_lag
        if taken.status is not None:
            sample.batch_ms = taken.status.batch_ms
            sample.pipeline_lag = taken.status.lag
    return sample


def _contention(sampler: Sampler, client: Caller, second: int) -> dict[str, Any]:
    """Conflict groups, and those hot keys that the client may read.

    Groups and counts follow from all keys, so that only who may read them all is told of them.
    """
    contention = sampler.contention
    contention.forget(second)
    keys = contention.hot_keys()
    hot_keys = [(key, writes) for key, writes in keys if client.may_read(key)][:_HOT_KEYS_SHOWN]
    answer = {
        "contention_s": contention.window_s,
        "observed": dict.fromkeys(contention.counts(), 0),
        "groups": [],
        "largest_group": 0,
        "hot_keys": [{"key": key, "writes": n} for key, n in hot_keys],
        "hidden_keys": 0,
    }
    if client.may_read(""):
        answer["observed"] = contention.counts()
        answer["groups"] = [sizes._asdict() for sizes in contention.sizes()]
        answer["largest_group"] = contention.largest()
    return answer
