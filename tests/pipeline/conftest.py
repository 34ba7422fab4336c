"""One Spark session for all tests that start a JVM; what the pipeline keeps for later ends with a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import leftovers
import pytest
from spark_fixture import spark

__all__ = ["spark"]


@pytest.fixture(autouse=True)
def _nothing_is_kept_for_later() -> Iterator[None]:
    """Readers of clusters and producers live as long as their process, for the tasks that follow."""
    yield
    clusters = sys.modules.get("splashdam.pipeline.clusters")
    if clusters is not None:
        while clusters._readers:
            clusters._readers.popitem()[1].close()
    producers = sys.modules.get("splashdam.pipeline.sink.producers")
    if producers is not None:
        while producers.CACHE._kept:
            producers.CACHE._kept.popitem()[1].producer.close(0)
    pool = sys.modules.get("pyiceberg.utils.concurrent")
    if pool is not None and pool.ExecutorFactory._instance is not None:
        pool.ExecutorFactory._instance.shutdown()
        pool.ExecutorFactory._instance = None


@pytest.fixture(scope="session", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """deltalake's first write starts a runtime that nobody can end."""
    with suppress(ImportError):
        import deltalake
        import pyarrow as pa

        path: Path = tmp_path_factory.mktemp("delta")
        with leftovers.kept():
            deltalake.write_deltalake(path, pa.table({"a": [1]}))
