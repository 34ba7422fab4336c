"""Logs in an object store: moto's S3 server, which `make s3` installs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.pipeline.log_source_kit import WHERE, partition_on_disk, records_in
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.log_source.filesystems import location_of
from splashdam.pipeline.log_source.offline_logs import OfflineLogs
from splashdam.record.reader import Record

pytestmark = pytest.mark.s3
moto = pytest.importorskip("moto.server", reason="needs moto's server; make s3 installs it")
pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

KEYS = {"access_key": "testing", "secret_key": "testing", "region": "us-east-1", "scheme": "http"}


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """A server on a port of its own; the settings to reach it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server: Any = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {**KEYS, "endpoint_override": f"{host}:{port}"}
    server.stop()


@pytest.fixture(scope="module")
def log(
    store: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, list[Record], list[Record]]:
    """A data directory in a bucket and on disk; all records of ``t`` and the committed ones of ``u``."""
    from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

    records: list[Record] = []
    committed: list[Record] = []
    path = tmp_path_factory.mktemp("s3")
    partition_on_disk(path, lambda log: records.extend(append_random(log, 6, 40)))
    partition_on_disk(path, lambda log: committed.extend(append_transactions(log, 6, 40)[1]), topic="u")
    bucket = S3FileSystem(**store, allow_bucket_creation=True)
    bucket.create_dir("logs")
    copy_files(str(path), "logs/kafka", source_filesystem=LocalFileSystem(), destination_filesystem=bucket)
    return "s3://logs/kafka", path, records, committed


def logs_at(uri: str, store: dict[str, str], *, committed: bool = False) -> OfflineLogs:
    """The logs there."""
    return OfflineLogs([location_of(uri, tuple(store.items()))], read_committed=committed)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_log_in_a_bucket_is_read_as_one_on_disk(
    store: dict[str, str], log: tuple[str, Path, list[Record], list[Record]], scheme: str
) -> None:
    """In slices and with ranges; Hadoop's name of the scheme will do."""
    uri, _, expected, _ = log
    logs = logs_at(uri.replace("s3", scheme, 1), store)
    assert logs.topics() == ["t", "u"]
    end = logs.offsets("t", [0], LATEST)[0]
    assert records_in(logs.slices(WHERE, 0, end, max_bytes=10_000)) == expected
    assert records_in(logs.slices(WHERE, 50, 90, max_bytes=10_000)) == expected[50:90]


def test_times_and_transactions_are_found_in_a_bucket(
    store: dict[str, str], log: tuple[str, Path, list[Record], list[Record]]
) -> None:
    """Indexes, lists of aborted transactions and snapshots are read there, too."""
    uri, path, _, committed = log
    there, here = logs_at(uri, store, committed=True), logs_at(str(path), {}, committed=True)
    for timestamp in (EARLIEST, LATEST, NOW_MS, NOW_MS + 20_000):
        assert there.offsets("t", [0], timestamp) == here.offsets("t", [0], timestamp)
    where = WHERE._replace(topic="u")
    end = there.offsets("u", [0], LATEST)[0]
    assert records_in(there.slices(where, 0, end, max_bytes=5000), committed=True) == committed


def test_a_partition_in_a_bucket(
    store: dict[str, str], log: tuple[str, Path, list[Record], list[Record]]
) -> None:
    """Its directory alone, with the settings in the URI."""
    uri, _, expected, _ = log
    query = f"region=us-east-1&scheme=http&endpoint_override={quote(store['endpoint_override'])}"
    keys = f"{store['access_key']}:{store['secret_key']}@"
    location = location_of(f"{uri.replace('://', f'://{keys}')}/t-0?{query}")
    logs = OfflineLogs([location], read_committed=False)
    slices = logs.slices(WHERE, 0, len(expected), max_bytes=1 << 30)
    assert records_in(slices) == expected


def test_a_bucket_that_is_not_there_is_named(store: dict[str, str]) -> None:
    """With what the store says."""
    with pytest.raises(KafkaStorageError, match="s3://nowhere/x"):
        logs_at("s3://nowhere/x", store).topics()
