"""Brokers at work: what is sent to them is what the figures are about, and small runs of every part."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

from splashdam.record.batch import HEADER_BYTES, parse_header
from splashdam.record.compression import decompress
from splashdam.storage.append_checks import check_batch
from splashdam.storage.settings import LogSettings
from splashdam.wire.header import encode_response
from splashdam.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

pytest.importorskip("cramjam", reason="needs splashdam[compression]")

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and the clocks of processes")

CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_a_batch_for_the_ingest_is_accepted_by_default(codec: str) -> None:
    """It holds a mebibyte but for a few percent, and no topic needs an option for it."""
    batch = importlib.import_module("broker.ingest").packed(codec, "1 KB")
    _, header = check_batch(batch.batch, LogSettings(), parse_header(batch.batch).max_timestamp)
    assert header.record_count == batch.records
    assert 0.95 < batch.plain_bytes / (1 << 20) < 1
    assert codec == "none" or len(batch.batch) < 0.7 * batch.plain_bytes


@pytest.mark.parametrize("codec", CODECS)
def test_bare_decompression_gives_the_same_records(codec: str) -> None:
    """The library alone gets all records out of the same bytes."""
    ingest = importlib.import_module("broker.ingest")
    batch = ingest.packed(codec, "100 B").batch
    body = batch[HEADER_BYTES:]
    bare = ingest.library_call(codec, body)()
    found = b"".join(bare) if isinstance(bare, list) else bare
    assert found == decompress(parse_header(batch).codec, body)


@on_linux
def test_cpu_time_of_a_process_is_finer_than_a_tick() -> None:
    """The clock of the whole process, in nanoseconds: asked of this one, it lies between two looks at it."""
    brokers = importlib.import_module("broker.running")
    before = time.process_time()
    found = brokers.cpu_seconds(os.getpid())
    assert before <= found <= time.process_time()


def test_a_stranger_whose_request_is_refused_ends_the_run() -> None:
    """A broker that does nothing holds nobody up: its figure would tell nothing."""
    stranger = importlib.import_module("broker.stalls").strangers()["ElectLeaders"]
    stranger.check(_elected(16_000))
    with pytest.raises(SystemExit, match="ElectLeadersRequest did not do what it is measured for"):
        stranger.check(_elected(1))


def _elected(partitions: int) -> bytes:
    results = [PartitionResult(partition_id=each, error_code=3) for each in range(partitions)]
    answer = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic="t", partition_result=results)]
    )
    return b"".join(encode_response(answer, version=2, correlation_id=1))[4:]


def test_the_percentile_is_one_of_the_waits() -> None:
    """Few waits have been measured where each was long; the percentile is then none that nobody had."""
    stalls = importlib.import_module("broker.stalls")
    assert stalls.waited([7.0], 0.0) == stalls.Waited(7.0, 7.0, 0.0)
    assert stalls.waited([*map(float, range(200))], 3.0) == stalls.Waited(198.0, 199.0, 3.0)


def small_run(tmp_path: Path, *arguments: str) -> list[str]:
    """The lines that a part has printed, without a real Kafka."""
    command = [sys.executable, "benchmarks/serving.py", "--rounds", "1", "--jars", str(tmp_path), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def figures(line: str, count: int) -> list[float]:
    """The last columns of a line."""
    return [float(each.rstrip("%").replace(",", "")) for each in line.split()[-count:]]


@on_linux
@pytest.mark.slow
def test_a_small_run_of_many_hands(tmp_path: Path) -> None:
    """Every field has a figure."""
    served = importlib.import_module("serving").Served
    lines = small_run(
        tmp_path, "--parts", "hands", "--connections", "4", "--partitions", "20", "--seconds", "0.2"
    )
    assert [line.split()[0] for line in lines[2:]] == list(served._fields)
    found = dict(zip(served._fields, (figures(line, 1)[0] for line in lines[2:]), strict=True))
    assert found["requests_per_s"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]


@on_linux
@pytest.mark.slow
def test_a_small_run_of_the_ingest(tmp_path: Path) -> None:
    """Each size and codec has all figures; what is not packed has nothing to be compared with.

    Linux may count a tick late what another process spends: two batches once took nothing.
    """
    rows = [line.split() for line in small_run(tmp_path, "--parts", "ingest", "--requests", "20")[2:]]
    assert [row[2] for row in rows] == ["none", *CODECS] * 2
    for _, _, codec, packed_kib, records, volume, times_bare, check in rows:
        assert (times_bare == "-") == (codec == "none")
        assert min(figures(f"{packed_kib} {records} {volume} {check}", 4)) > 0


@on_linux
@pytest.mark.slow
def test_a_small_run_of_the_stalls(tmp_path: Path) -> None:
    """The client is served beside every stranger, and every stranger, too."""
    stalls = importlib.import_module("broker.stalls")
    lines = small_run(tmp_path, "--parts", "stalls", "--seconds", "0.1")[3:]
    rows = {line[:23].strip(): figures(line, 3) for line in lines}
    assert list(rows) == ["nobody", *stalls.strangers()]
    for who, (p99_ms, longest_ms, strange_per_s) in rows.items():
        assert 0 < p99_ms <= longest_ms + 0.1  # they are printed with other digits
        assert (strange_per_s > 0) == (who != "nobody")
