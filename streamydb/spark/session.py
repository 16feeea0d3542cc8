"""The settings by which a Spark session speaks to Kafka, and the database that is meant."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from streamydb.kafka.reader import TopicReader
from streamydb.local.jars import class_path, resolve
from streamydb.local.java import java_home
from streamydb.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Give a session's builder Spark's Kafka connector, for driver and executors.

    The jars come from the cache that `python -m streamydb.local.jars` fills. On a cluster they must
    lie at the same place on every machine; or leave this out and use `spark-submit --packages`. It
    has no effect on a session that exists already. Raises JarsError: the jars cannot be fetched.
    Raises JavaError: there is no usable Java.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("JAVA_HOME", java_home())
    jars = class_path(resolve("pipeline"))
    return builder.config("spark.driver.extraClassPath", jars).config(
        "spark.executor.extraClassPath", jars
    )


def settings_of(database: str | None, bootstrap: str | None, settings: Settings | None) -> Settings:
    """The settings that are given, then those of the environment."""
    if settings is not None:
        return settings
    names: dict[str, Any] = {"database": database, "bootstrap": bootstrap}
    return Settings(**{name: value for name, value in names.items() if value is not None})


def require_topic(place: Settings, topic: str) -> None:
    """Refuse a topic that is not there. Raises TopicMissingError: it is not."""
    with TopicReader(place.client_config(), topic) as reader:
        reader.partitions()
