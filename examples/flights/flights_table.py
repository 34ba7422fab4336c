"""Checks with Spark, which reads the table again, that it has every record of the log once and unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def differences_of_table(spark: SparkSession, place: Path, ends: Mapping[int, int], limit: int) -> list[str]:
    """Return the differences: records that are missing in the table, or there more than once.

    Args:
        spark: the session.
        place: path of the Delta table.
        ends: log end offset of each partition of the topic.
        limit: number of flights sent; each has its number in ``row``.
    """
    from deltalake import DeltaTable
    from pyspark.sql import functions as f

    table = spark.read.parquet(*DeltaTable(str(place)).file_uris())
    row = f.get_json_object(f.col("value").cast("string"), "$.row").cast("int")
    counted = (
        table.groupBy("partition")
        .agg(
            f.count("*").alias("records"),
            f.count_distinct("offset").alias("offsets"),
            f.max("offset").alias("last"),
            f.sum(row).alias("rows"),
        )
        .collect()
    )
    found = [
        f"partition {each.partition} has {ends.get(each.partition, 0):,} records; in the table are "
        f"{each.records:,} rows with {each.offsets:,} offsets up to {each.last:,}"
        for each in counted
        if not each.records == each.offsets == each.last + 1 == ends.get(each.partition, 0)
    ]
    rows, expected = sum(each.rows or 0 for each in counted), limit * (limit - 1) // 2
    if rows != expected:
        found.append(f"the numbers of the flights in the table come to {rows:,}, not {expected:,}")
    return found
