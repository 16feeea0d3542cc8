"""The client's transport straight to Kafka, made from a URL: kafka://host:port/database."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote

from pydantic import ValidationError

from streamydb.client.connector import split
from streamydb.client.generation import Generation
from streamydb.errors import ConfigurationError
from streamydb.facade.direct import DirectTransport
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.kafka_changes import KafkaChanges
from streamydb.facade.settings import FacadeSettings
from streamydb.read_model import ReadModel
from streamydb.settings import Settings

_KAFKA_FORM = "kafka://host:port[,host:port]/database?read_model=/folder"


def transport(
    url: str, token: str | None, timeout_s: float, history: Generation | None = None
) -> DirectTransport:
    """The transport of kafka://host:port/database?read_model=/folder.
    Raises ConfigurationError: it is no such URL; or there is no read model in the folder.
    """
    if token is not None:
        raise ConfigurationError("a token is for facades; Kafka has settings of its own")
    brokers, database, folder = kafka_parts(url)
    try:
        settings = Settings(database=database, bootstrap=brokers)
        facade = FacadeSettings(verdict_timeout_s=max(timeout_s, 30))
    except ValidationError as error:
        raise ConfigurationError(f"{_KAFKA_FORM}: {error.errors()[0]['msg']}") from None
    model = ReadModel.open(folder, database)
    log, changes = KafkaLog(settings, facade, model), KafkaChanges(settings, facade, model)
    return DirectTransport(model, log, changes, facade, on_close=model.close, history=history)


def kafka_parts(url: str) -> tuple[str, str, Path]:
    """The brokers, the database and the folder that a URL names.
    Raises ConfigurationError: it names too little, or too much.
    """
    parts = split(url)
    query = parse_qs(parts.query)
    folders = query.pop("read_model", [])
    database = unquote(parts.path.removeprefix("/"))
    if not parts.netloc or not database or len(folders) != 1 or query or parts.fragment:
        raise ConfigurationError(f"the URL of a database on Kafka is {_KAFKA_FORM}")
    return parts.netloc, database, Path(folders[0])
