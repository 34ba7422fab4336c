"""Batches through Spark's connector and through ours give what is in the books, option by option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.pipeline.connector_kit import FORMATS, batch, rows
from support.pipeline.connector_queries import BATCH, BATCH_REFUSALS, PLAIN, Query, Refusal
from support.pipeline.connector_topics import Books

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spark_jvm]


@pytest.mark.parametrize("word", FORMATS)
@pytest.mark.parametrize("query", BATCH, ids=str)
def test_batch(spark: SparkSession, books: Books, word: str, query: Query) -> None:
    """The same options, the same rows."""
    found = batch(spark, word, books.servers, query.options)
    has_headers = "headers" in found.columns
    assert rows(found) == books.where(query.wanted, has_headers)


@pytest.mark.parametrize("word", FORMATS)
@pytest.mark.parametrize("refusal", BATCH_REFUSALS, ids=str)
def test_refused(spark: SparkSession, books: Books, word: str, refusal: Refusal) -> None:
    """Both refuse the same options, and name them."""
    with pytest.raises(Exception, match=f"(?i){refusal.says}"):
        batch(spark, word, books.servers, refusal.options).collect()


@pytest.mark.parametrize("options", [{}, {"includeHeaders": "true"}], ids=["plain", "headers"])
def test_columns(spark: SparkSession, books: Books, options: dict[str, str]) -> None:
    """The same names, types and nullability."""
    theirs, ours = (batch(spark, word, books.servers, {**PLAIN, **options}).schema for word in FORMATS)
    assert ours == theirs


@pytest.mark.parametrize("word", FORMATS)
def test_a_count(spark: SparkSession, books: Books, word: str) -> None:
    """Nothing is asked of the columns."""
    assert batch(spark, word, books.servers, PLAIN).count() == 30


@pytest.mark.parametrize("word", FORMATS)
def test_minimum_of_partitions(spark: SparkSession, books: Books, word: str) -> None:
    """So many tasks, where the records can be divided alike."""
    assert batch(spark, word, books.servers, {**PLAIN, "minPartitions": "6"}).rdd.getNumPartitions() >= 6


@pytest.mark.parametrize("word", FORMATS)
def test_filters(spark: SparkSession, books: Books, word: str) -> None:
    """Filters that a source may use to read less, and one that it cannot."""
    found = batch(spark, word, books.servers, PLAIN)
    found = found.where("partition = 1 AND offset >= 3 AND key IS NOT NULL AND value LIKE 'value %'")
    assert rows(found) == books.where(
        lambda each: (
            (each.topic, each.partition) == ("plain", 1)
            and each.offset >= 3
            and each.key is not None
            and each.value is not None
        )
    )
