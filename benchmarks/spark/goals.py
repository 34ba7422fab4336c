"""The pipeline's goals, compared with the figures of a run."""

from __future__ import annotations

from comparison.goals import Goal, ratio, value
from comparison.goals import print_goals as print_table
from rich.console import Console

from spark.scenarios import (
    BAD_SYNTAX,
    GOOD_JSON,
    INGEST,
    LOCAL_FILES,
    LOG_READ,
    THEIR_TUNED_FILES,
    THEIR_WRITE,
    WRITE,
    WRONG_TYPES,
)
from splashdam.cli.measuring.figures import RATE, TIMES, Results

GOALS = (
    Goal("kafka-log, 100 B: records/s", value("read-100", LOG_READ, RATE), RATE, 1e6, 1.5e6),
    Goal(
        "JSON with 1 % syntax errors vs good rows",
        ratio("json-100", BAD_SYNTAX, GOOD_JSON),
        TIMES,
        0.5,
        0.9,
    ),
    Goal(
        "JSON with 1 % wrong types vs good rows",
        ratio("json-100", WRONG_TYPES, GOOD_JSON),
        TIMES,
        0.5,
        0.9,
    ),
    Goal("ingest into Parquet, 100 B: records/s", value("ingest-100", INGEST, RATE), RATE, 0.5e6, 0.7e6),
    Goal(
        "ingest into Parquet, 100 B, vs Spark's kafka",
        ratio("ingest-100", INGEST, THEIR_TUNED_FILES),
        TIMES,
        1,
        1.5,
    ),
    Goal(
        "ingest into Parquet, 1 KB, vs Spark's kafka",
        ratio("ingest-1k", INGEST, THEIR_TUNED_FILES),
        TIMES,
        1,
        1.5,
    ),
    Goal(
        "kafka-local instead of kafka, into Parquet, 100 B",
        ratio("ingest-100", LOCAL_FILES, THEIR_TUNED_FILES),
        TIMES,
        1,
        1.5,
    ),
    Goal(
        "a frame into a topic, 100 B, vs Spark's kafka", ratio("write-100", WRITE, THEIR_WRITE), TIMES, 1, 1.5
    ),
)


def print_goals(results: Results, console: Console) -> None:
    """Print the run's figures with floor and goal; figures that the run did not measure are left out."""
    print_table(results, console, GOALS)
