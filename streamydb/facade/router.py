"""From a request to its answer: the row of the table, the token, the parameters, the scope."""

from __future__ import annotations

import logging
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple

from streamydb.errors import StreamyError
from streamydb.facade.answer import Answer, EventStream, problem_answer
from streamydb.facade.asgi import Scope
from streamydb.facade.console.traffic import Traffic
from streamydb.facade.endpoint import Endpoint
from streamydb.facade.headers import header_of
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.problems import ProblemError, log_failure_text
from streamydb.facade.queries import NoQuery, QueryForm
from streamydb.facade.request import Request
from streamydb.facade.request_target import split_path
from streamydb.kafka.errors import KafkaUnavailableError

_LOG: Final = logging.getLogger("streamydb.facade")


class _Row(NamedTuple):
    """An endpoint, and the decoder of its query strings; None: they are not looked at."""

    endpoint: Endpoint
    query: QueryForm[Any] | None


class Route(NamedTuple):
    """The place in the table that a request goes to; no row: no such path, or no such method."""

    row: _Row | None
    name: bytes = b""
    allow: str = ""

    @property
    def label(self) -> str:
        return "unmatched" if self.row is None else self.row.endpoint.path


class _Path(NamedTuple):
    """A path of the table: its rows by method, and all of the methods."""

    rows: Mapping[str, _Row]
    allow: str


class Router:
    """The table of endpoints, and the way through it.

    ``reading``: paths whose POST reads, unless its body says otherwise. ``of_any_host``: paths that
    answer also for a host that is none of the facade's.
    """

    def __init__(
        self, endpoints: Iterable[Endpoint], metrics: FacadeMetrics, traffic: Traffic
    ) -> None:
        by_path: dict[str, list[Endpoint]] = defaultdict(list)
        for endpoint in endpoints:
            by_path[endpoint.path].append(endpoint)
        self._paths: dict[str, _Path] = {}
        self._named: dict[str, _Path] = {}
        self._nested: list[tuple[str, bool, _Path]] = []
        for path, path_endpoints in by_path.items():
            start, _, _ = path.partition("{")
            path_rows, rest = _path_of(path_endpoints), path_endpoints[0].rest
            if rest == "text":
                self._named[start] = path_rows
            elif rest:
                self._nested.append((start, rest == "segments", path_rows))
            else:
                self._paths[path] = path_rows
        self._starts = tuple(start.encode() for start in self._named)
        every = [endpoint for path_endpoints in by_path.values() for endpoint in path_endpoints]
        self.reading = frozenset(
            e.path for e in every if e.method == "POST" and e.appends != "always"
        )
        self.of_any_host = frozenset(e.path for e in every if e.any_host)
        self._metrics = metrics
        self._traffic = traffic

    def find(self, scope: Scope) -> Route:
        """Return the place of a request.
        Raises ProblemError: no-such-endpoint, for a path that could be taken for another one.
        """
        path, name = split_path(scope, self._starts)
        if name is not None:
            return _route(self._named[path], scope["method"], name)
        path = path.removesuffix("/") or "/"
        path_rows = self._paths.get(path)
        if path_rows is not None:
            return _route(path_rows, scope["method"])
        for start, many, path_rows in self._nested:
            rest = path.removeprefix(start)
            if rest != path and rest and (many or "/" not in rest):
                return _route(path_rows, scope["method"], rest.encode())
        return Route(None)

    async def answer(self, request: Request, route: Route) -> None:
        began = time.perf_counter()
        try:
            try:
                answer = await _answer(request, route)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
                answer = self._failed(error)
            await answer.send(request.receive, request.sender)
        finally:
            work = "other" if route.row is None else route.row.endpoint.work
            if work != "other":
                seconds = time.perf_counter() - began
                self._traffic.record(int(time.time()), work, request.sender.status, seconds)

    def _failed(self, error: Exception) -> Answer:
        problem = _problem_of(error)
        self._metrics.problem(problem.problem.slug)
        return problem_answer(problem)


async def _answer(request: Request, route: Route) -> Answer | EventStream:
    if route.row is None:
        if not route.allow:
            raise ProblemError("no-such-endpoint", "See /schema for the endpoints.")
        allow = {"Allow": route.allow}
        raise ProblemError("method-not-allowed", "See the header Allow.", headers=allow)
    endpoint, form = route.row
    access = endpoint.access
    if access.token:
        authorization = header_of(request.fields, b"authorization")
        request.client = request.services.tokens.identify(authorization)
    query = None if form is None else form.read(request.query)
    if access.check is not None:
        access.check(request, query)
    return await endpoint.answer(request, query)


def _route(path_rows: _Path, method: str, name: bytes = b"") -> Route:
    return Route(path_rows.rows.get(method), name, path_rows.allow)


def _path_of(endpoints: list[Endpoint]) -> _Path:
    """Return a path of the table: HEAD goes with GET, and OPTIONS names all methods."""
    rows = {
        each.method: _Row(each, None if each.query is None else QueryForm(each.query))
        for each in endpoints
    }
    if "GET" in rows and not rows["GET"].endpoint.endless:
        rows["HEAD"] = rows["GET"]
    allow = ", ".join(sorted({*rows, "OPTIONS"}))
    options = Endpoint(
        method="OPTIONS", path=endpoints[0].path, answer=_teller_of(allow),
        access=endpoints[0].access._replace(check=None),
    )  # fmt: skip
    rows["OPTIONS"] = _Row(options, rows[endpoints[0].method].query and QueryForm(NoQuery))
    return _Path(rows, allow)


def _teller_of(allow: str) -> Callable[[Request, Any], Coroutine[Any, Any, Answer]]:
    async def tell_methods(_request: Request, _query: object) -> Answer:
        return Answer(b"", {"Allow": allow}, 204, ())

    return tell_methods


def _problem_of(error: Exception) -> ProblemError:
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, KafkaUnavailableError):
        return ProblemError("log-unavailable", f"{log_failure_text(error)}.", retry_after_s=1)
    if isinstance(error, StreamyError):
        _LOG.warning("the read model failed with %s", type(error).__name__)
        return ProblemError("not-ready", "The read model cannot be read.", retry_after_s=1)
    frames = "".join(traceback.format_tb(error.__traceback__))  # where, and none of the values
    _LOG.error("a request failed with %s\n%s", type(error).__name__, frames)
    return ProblemError("internal", "A fault in streamy-db; its log tells where.")
