"""URLs and arguments of clients: right ones are taken as they are, wrong ones refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb import connect
from streamydb.client import InvalidParameterError, connector
from streamydb.client.session import Session
from streamydb.client.watch_core import FollowedStream
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.facade.direct import kafka_parts

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12).filter(
    lambda name: name[0].isalpha()
)
HOSTS = st.tuples(NAMES, st.integers(1, 65_535)).map(lambda host: f"{host[0]}:{host[1]}")


@given(st.lists(HOSTS, min_size=1, max_size=3), NAMES, st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))  # fmt: skip
def test_the_parts_of_a_kafka_url_are_those_that_it_was_made_of(
    brokers: list[str], database: str, folder: str
) -> None:
    where = ",".join(brokers)
    url = f"kafka://{where}/{quote(database, safe='')}?read_model={quote('/' + folder, safe='')}"
    assert connector._is_kafka(url)
    found, name, place = kafka_parts(url)
    assert (found, name, str(place)) == (where, database, str(type(place)(f"/{folder}")))


PARTS = st.text(max_size=12) | st.text("[]:@/?#%.0123456789abcdef", max_size=12)
SCHEMES = st.sampled_from(["", "http://", "https://", "http://h:", "kafka://", "kafka://h/d?"])


@settings(max_examples=80)
@given(PARTS, SCHEMES)
def test_what_is_no_url_is_refused_with_what_it_has_to_be(text: str, scheme: str) -> None:
    said = "http:// or https://"
    try:
        with connect(scheme + text, verify=False, timeout_s=1):
            assert (scheme + text).startswith("http")
    except StreamyError as refused:
        said = str(refused)
    assert "://" in said or "read model" in said


@settings(max_examples=10)
@given(
    HOSTS, st.sampled_from(["strong", "session", "snapshot", "none"]), st.floats(0, 99),
    st.text(max_size=3),
)  # fmt: skip
def test_a_client_is_what_its_arguments_say(
    host: str, consistency: Any, timeout_s: float, token: str
) -> None:
    good_token = token.isascii() and token.isprintable() and bool(token)
    try:
        with connect(
            f"http://{host}", token=token, consistency=consistency, timeout_s=timeout_s
        ) as client:
            options = client.session.options
            assert (options.consistency, options.timeout_s) == (consistency, timeout_s)
            assert client.session.freshness().consistency in {consistency, "snapshot"}
    except ConfigurationError:
        assert not good_token or consistency == "none"
    else:
        assert good_token
        assert consistency != "none"


@given(st.tuples(st.integers(-3, 2**64)) | st.tuples(st.integers(-3, 3), st.integers(-3, 2**64)))
def test_a_place_of_a_stream_is_one_or_is_refused(place: tuple[int, ...]) -> None:
    right = all(0 <= part < 2**63 for part in place)
    try:
        FollowedStream(Session(), "a.b", place, end=True)  # type: ignore[arg-type]
    except InvalidParameterError:
        assert not right
    else:
        assert right
