"""A table back into topics: keys, values, timestamps, headers and partitions as they were, in their order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.admin.topics import describe_topic, list_topics
from splashdam.pipeline.jobs.progress import OnProgress, follow
from splashdam.pipeline.jobs.replay_plan import Step, plan_from_json, plan_of, plan_to_json
from splashdam.pipeline.option_values import to_text
from splashdam.pipeline.schema import Columns
from splashdam.pipeline.sink.cluster import Clients, ask
from splashdam.pipeline.sink.options import sink_options
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.opening import existing_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENT = ("key", "value", "topic", "partition", "timestamp", "headers")
"""Columns that the sink takes."""
PLAN = "replay-plan.json"
"""In the checkpoint's folder."""


@attrs.frozen
class ReplayReport:
    """What a replay did since it was started.

    Attributes:
        steps: of the plan, in all.
        batches: micro-batches of this run, each a step.
        records: records that were sent.
    """

    steps: int
    batches: int
    records: int


def replay(
    spark: SparkSession,
    table_format: str,
    place: str | os.PathLike[str],
    sink: Mapping[str, str],
    *,
    checkpoint: str | os.PathLike[str],
    table_options: Mapping[str, str] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> ReplayReport:
    """Sends the records of a table to the partitions that they came from, each partition in its order.

    The first run looks at the files of the table and keeps its plan beside the checkpoint: what comes into
    the table later is not sent. Started again with the same checkpoint it goes on behind the last step that
    was sent. What a step sent that was broken off is sent again, unless ``delivery`` is ``exactly_once``;
    with ``dedup`` readers can tell.

    Args:
        spark: the session.
        table_format: ``parquet``, ``delta`` or ``iceberg``.
        place: of the table.
        sink: options of the sink ``kafka-local``; ``topic`` sends all records there instead of to their own.
        checkpoint: where Spark keeps how far the query is, and the plan is kept.
        table_options: see `splashdam.pipeline.tables.existing_table`.
        on_progress: is told of each micro-batch.

    Raises:
        TableMissingError: there is no such table.
        KafkaConfigurationError: it has not Kafka's columns, or a topic has too few partitions.
        StreamingQueryException: a step failed; start again to repeat it.
    """
    from splashdam.pipeline.jobs import replay_source as source

    table = existing_table(table_format, place, table_options)
    kept = f"{os.fspath(checkpoint)}/{PLAN}"
    plan = _kept_plan(Location.of(checkpoint, table_options)) or plan_of(table)
    _check_partitions(plan, sink)
    _keep(Location.of(checkpoint, table_options), plan)
    columns = Columns(tuple(name for name in SENT if name in table.schema.names))
    options = {
        source.READING: to_text(source.Reading(table.location, columns)),
        source.PLAN: kept,
        source.COLUMNS: ",".join(columns.names),
    }
    table.close()
    spark.dataSource.register(source.ReplaySource)
    rows = spark.readStream.format(source.FORMAT).options(**options).load()
    writer = rows.writeStream.format("kafka-local").options(**sink)
    query = writer.option("checkpointLocation", os.fspath(checkpoint)).trigger(availableNow=True).start()
    done = follow(query, on_progress)
    return ReplayReport(len(plan), done.batches, done.rows)


def _kept_plan(checkpoint: Location) -> list[Step] | None:
    return plan_from_json(checkpoint.read_bytes(PLAN).decode()) if checkpoint.exists(PLAN) else None


def _keep(checkpoint: Location, plan: Sequence[Step]) -> None:
    if checkpoint.exists(PLAN):
        return
    aside = f"{PLAN}.new"
    with checkpoint.open_output(aside) as file:
        file.write(plan_to_json(plan).encode())
    checkpoint.move(aside, PLAN)


def _check_partitions(plan: Sequence[Step], sink: Mapping[str, str]) -> None:
    """Each topic has the partitions that its records came from."""
    options = sink_options(sink)
    needed: dict[str, int] = {}
    for piece in (piece for step in plan for piece in step):
        topic = options.topic or piece.topic
        if not topic:
            raise KafkaConfigurationError("the table has no column topic: say with the option topic where to")
        needed[topic] = max(needed.get(topic, 0), piece.partition + 1)

    async def count(clients: Clients) -> dict[str, int]:
        known = await list_topics(clients.cluster)
        infos = [await describe_topic(clients.cluster, topic) for topic in needed if topic in known]
        return {info.name: len(info.partitions) for info in infos}

    found = ask(options, count)
    for topic, partitions in needed.items():
        if found.get(topic, 0) < partitions:
            raise KafkaConfigurationError(
                f"the records come from {partitions} partitions, and topic {topic} has "
                f"{found.get(topic, 0)}: splashdam topics create {topic} --partitions {partitions}"
            )
