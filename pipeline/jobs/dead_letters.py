"""Records that could not be read, as records of a dead-letter topic.

Key, value, headers and timestamp are the original's. Behind its headers stand those that Kafka Connect adds
(``errors.deadletterqueue.context.headers.enable``), texts all of them, so that tools for its dead letters
read ours; what Connect has no name for begins with ``splashdam.errors.``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON, DETAIL = "reason", "detail"
"""Columns of bad rows: a word that programs may rely on, and a sentence."""

TOPIC_HEADER = "__connect.errors.topic"
PARTITION_HEADER = "__connect.errors.partition"
OFFSET_HEADER = "__connect.errors.offset"
NAME_HEADER = "__connect.errors.connector.name"
STAGE_HEADER = "__connect.errors.stage"
CLASS_HEADER = "__connect.errors.exception.class.name"
MESSAGE_HEADER = "__connect.errors.exception.message"
REASON_HEADER = "splashdam.errors.reason"
TIMESTAMP_HEADER = "splashdam.errors.timestamp"
"""Milliseconds since the epoch."""

STAGE = "VALUE_CONVERTER"
"""What Connect calls the step in which values are read."""
CLASS = "splashdam.pipeline.values.verdicts.BadValueError"


def dead_letters(bad: DataFrame, query: str) -> DataFrame:
    """What the sink sends: ``key``, ``value``, ``headers`` and ``timestamp``.

    Args:
        bad: rows with Kafka's columns, as many of them as there are, ``reason`` and ``detail``.
        query: who found them bad.
    """
    from pyspark.sql import functions as F

    there = set(bad.columns)
    context: dict[str, Column] = {
        name: F.col(column).cast("string")
        for name, column in (
            (TOPIC_HEADER, "topic"),
            (PARTITION_HEADER, "partition"),
            (OFFSET_HEADER, "offset"),
        )
        if column in there
    }
    if "timestamp" in there:
        context[TIMESTAMP_HEADER] = F.unix_millis("timestamp").cast("string")
    context |= {
        NAME_HEADER: F.lit(query),
        STAGE_HEADER: F.lit(STAGE),
        CLASS_HEADER: F.lit(CLASS),
        MESSAGE_HEADER: F.col(DETAIL),
        REASON_HEADER: F.col(REASON),
    }
    added = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in context.items()
        )
    )
    kind = "array<struct<key:string,value:binary>>"
    own = F.coalesce(F.col("headers"), F.array().cast(kind)) if "headers" in there else F.array().cast(kind)
    kept = [name for name in ("key", "value", "timestamp") if name in there]
    return bad.select(*kept, F.concat(own, added.cast(kind)).alias("headers"))
