"""Why no randomized test has to execute some modules of production."""

from __future__ import annotations

from typing import Final

__all__ = ["REASONS", "reason"]

_REAL: Final = (
    "joins real parts: `make campaign` and histories under kills drive it, with drawn faults"
)
_SHOWS: Final = "shows what others have decided; nothing reads it back"
_STARTS: Final = "finds, starts or stops programs and files; decides nothing of data"
_ERRORS: Final = "makes a message; decides nothing"
_COMMANDS: Final = (
    "commands: they call functions of other rooms, which have rows of their own and refuse what is "
    "wrong themselves"
)
_JUDGES: Final = "judges what was written and changes nothing; damage by hand shows that it notices"
_FRAMES: Final = (
    "runs on a Spark session, see `tests/spark/test_frames.py`; what it decides of rows is in "
    "`spark.rows` and `payloads`"
)
_FREES: Final = "when memory is freed; changes no answer"
_WARMS: Final = "compiles what is run later; its results are thrown away"
_TOPICS: Final = "refuses topics with other settings; case 18 of docs/reliability.md tries them"

_SCHEMA: Final = (
    "makes a schema as it is imported; `tests/unit/records/test_schemas.py` holds it against the "
    "decoder with drawn records"
)

REASONS: Final[dict[str, str]] = {
    "streamydb.cli": _COMMANDS,
    "streamydb.frames.jit": "makes kernels of functions; the kernels are executed",
    "streamydb.frames.shards": _ERRORS,
    "streamydb.facade.about": _SHOWS,
    "streamydb.facade.traces": _SHOWS,
    "streamydb.kafka.changes": _REAL,
    "streamydb.kafka.checks": _TOPICS,
    "streamydb.kafka.clock": _SHOWS,
    "streamydb.kafka.topic_plans": _TOPICS,
    "streamydb.kafka.creation": _TOPICS,
    "streamydb.kafka.librdkafka": (
        "calls a library; `tests/kafka/test_column_reader.py` draws records for a real broker, and "
        "holds it against the other reader"
    ),
    "streamydb_layers.documents.clients": "hands calls to `documents.core`",
    "streamydb_layers.leases.clients": "hands calls to `leases.core`",
    "streamydb_layers.tables.alchemy": "hands calls to `tables.dbapi`; SQLAlchemy's suite",
    "streamydb_layers.tables.dbapi": "hands calls to `tables.database`",
    "streamydb_layers.tables.migrations": "tells Alembic the words of the dialect; decides nothing",
    "streamydb.limits": "how much a micro-batch reads; the simulator draws its batches anyhow",
    "streamydb.local.broker": _STARTS,
    "streamydb.local.class_data": _STARTS,
    "streamydb.local.own_process": _FREES,
    "streamydb.local.exposition": _SHOWS,
    "streamydb.local.folder": _STARTS,
    "streamydb.local.fork_server": _STARTS,
    "streamydb.local.jars": _STARTS,
    "streamydb.local.java": _STARTS,
    "streamydb.local.launcher": _STARTS,
    "streamydb.local.memory": _SHOWS,
    "streamydb.local.processes": _STARTS,
    "streamydb.local.title": _SHOWS,
    "streamydb.local.signals": "case 44 of docs/reliability.md: a signal at every step",
    "streamydb.pipeline.__main__": _STARTS,
    "streamydb.pipeline.checkpoint": "copies files of a store; `make test-stores` kills pipelines",
    "streamydb.pipeline.daemon": "runs in processes that this test starts and kills; not traced",
    "streamydb.pipeline.jvm": _REAL,
    "streamydb.pipeline.config": "settings and where files lie; nothing is computed",
    "streamydb.pipeline.session": _STARTS,
    "streamydb.pipeline.main": _REAL,
    "streamydb.pipeline.query": _REAL,
    "streamydb.pipeline.realtime.packing": "makes rows in Spark's JVM; `realtime.rows` reads them",
    "streamydb.pipeline.realtime.query": _REAL,
    "streamydb.pipeline.realtime.readback": "reads Kafka; `confirmations` judges what it sees",
    "streamydb.pipeline.realtime.report": "tells people how far a gear is; no output depends on it",
    "streamydb.pipeline.realtime.requirements": "says why there is one gear, in a few cases",
    "streamydb.pipeline.realtime.site": "looks at the running Spark, and refuses a setting",
    "streamydb.pipeline.shutdown": "case 44 of docs/reliability.md: what hangs is ended by force",
    "streamydb.pipeline.standby.handover": _REAL,
    "streamydb.pipeline.warmup": _WARMS,
    "streamydb.pipeline.without_pandas": "decides which libraries are loaded, and nothing else",
    "streamydb.read_model.ports": "types that snapshots are held to; it has no function",
    "streamydb.read_model.service": _REAL,
    "streamydb.read_model.warmup": _WARMS,
    "streamydb.records.transaction_schema": _SCHEMA,
    "streamydb.spark.folders": _FRAMES,
    "streamydb.spark.operations": _FRAMES,
    "streamydb.spark.readers": _FRAMES,
    "streamydb.spark.session": _FRAMES,
    "streamydb.spark.snapshots": _FRAMES,
    "streamydb.spark.submission": _FRAMES,
    "streamydb_layers.tables.process": (
        "a process of its own; `tests/layers/unit/test_tables_random.py` drives it over REST"
    ),
    "streamydb.sql.tables": "hands calls to `streamydb_layers.tables`, which has rows of its own",
    "streamydb.testing.database": _STARTS,
    "streamydb.verify.whatif.parquet": "writes what others have found, whole or not at all",
    "streamydb.verify.check": _JUDGES,
}
"""Why no randomized test has to execute a module, by its name or that of a package above it."""


def reason(module: str) -> str | None:
    """Why no randomized test has to execute a module; None: one has to."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 1, -1)]
    return next((REASONS[name] for name in names if name in REASONS), None)
