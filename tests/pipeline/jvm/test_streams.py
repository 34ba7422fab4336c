"""Streams through Spark's connector and through ours: the same rows, offsets, limits and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.pipeline.connector_kit import FORMATS, Stream
from support.pipeline.connector_queries import EITHER, PLAIN, STREAM_REFUSALS, Query, Refusal
from support.pipeline.connector_topics import Books

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spark_jvm]

EARLIEST = {"startingOffsets": "earliest"}


@pytest.mark.parametrize("word", FORMATS)
@pytest.mark.parametrize("query", EITHER, ids=str)
def test_stream(spark: SparkSession, books: Books, tmp_path: Path, word: str, query: Query) -> None:
    """The same options as a batch's, the same rows."""
    stream = Stream(spark, tmp_path, word, books.servers, {**EARLIEST, **query.options})
    stream.run()
    assert stream.rows() == books.where(query.wanted, "includeheaders" in map(str.lower, query.options))


@pytest.mark.parametrize("word", FORMATS)
@pytest.mark.parametrize("refusal", STREAM_REFUSALS, ids=str)
def test_refused(spark: SparkSession, books: Books, tmp_path: Path, word: str, refusal: Refusal) -> None:
    """Both refuse the same options, and name them."""
    with pytest.raises(Exception, match=f"(?i){refusal.says}"):
        Stream(spark, tmp_path, word, books.servers, refusal.options).run()


def test_offsets_in_the_checkpoint(spark: SparkSession, books: Books, tmp_path: Path) -> None:
    """The log of offsets reads alike, batch for batch."""
    ends = []
    for word in FORMATS:
        stream = Stream(spark, tmp_path / word, word, books.servers, {**PLAIN, **EARLIEST})
        stream.run(maxOffsetsPerTrigger="9")
        ends.append(stream.ends())
    assert len(ends[0]) > 2
    assert ends[0] == ends[1]


@pytest.mark.parametrize("word", FORMATS)
def test_a_batch_has_at_most(spark: SparkSession, books: Books, tmp_path: Path, word: str) -> None:
    """Admission control: no batch is larger, and nothing is left out; each partition may round up."""
    stream = Stream(spark, tmp_path, word, books.servers, {**PLAIN, **EARLIEST})
    counts = stream.run(maxOffsetsPerTrigger="7")
    assert sum(counts) == 30
    assert max(counts) <= 7 + 3
    assert stream.rows() == books.where(lambda each: each.topic == "plain")
