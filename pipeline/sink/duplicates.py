"""For readers of what ``delivery=dedup`` has written: each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.sink.identity_headers import IDENTITY_HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMN = "__splashdam_identity"


def drop_duplicates(df: DataFrame, *, within_watermark: bool = False) -> DataFrame:
    """Keeps one record of each row that a sink with ``delivery=dedup`` has written; others are all kept.

    In a stream Spark remembers what it has seen for ever; with a watermark (``df.withWatermark("timestamp",
    …)``) it may be for that long.

    Args:
        df: read from topics, with ``includeHeaders`` and the columns ``topic``, ``partition``, ``offset``.
        within_watermark: duplicates are looked for within the watermark, which a stream must have then.

    Raises:
        KafkaConfigurationError: one of these columns is missing.
    """
    from pyspark.sql import functions as f

    needed = ("headers", "topic", "partition", "offset")
    missing = [name for name in needed if name not in df.columns]
    if missing:
        raise KafkaConfigurationError(
            f"drop_duplicates needs the columns {', '.join(needed)}, and {', '.join(missing)} is missing:"
            ' read with .option("includeHeaders", "true"), and drop columns afterwards'
        )
    place = f.concat_ws("/", f.lit("offset"), f.col("partition"), f.col("offset"))
    texts = [  # the last ones: rows that come from such a topic themselves have older ones before
        f.expr(f"decode(get(reverse(filter(headers, h -> h.key = '{name}')), 0).value, 'utf-8')")
        for name in IDENTITY_HEADERS
    ]
    has_all = f.lit(True)
    for each in texts:
        has_all = has_all & each.isNotNull()
    identity = f.when(f.coalesce(has_all, f.lit(False)), f.concat_ws("/", *texts)).otherwise(place)
    marked = df.withColumn(_COLUMN, identity)
    keys = ["topic", _COLUMN]
    kept = marked.dropDuplicatesWithinWatermark(keys) if within_watermark else marked.dropDuplicates(keys)
    return kept.drop(_COLUMN)
