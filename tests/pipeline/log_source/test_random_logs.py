"""Random logs in random slices, and directories of brokers against what these serve over the wire."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka import TopicPartition as TheirPartition
from support.kafka.kafka_reading import served
from support.pipeline.log_source_kit import SMALL, offline, partition_on_disk, records_in, slices_in
from support.running.oracles import shared
from support.storage.compacted_logs import COMPACTED, clean, keyed, roll
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS, read_all, read_headers

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.values import TopicPartition
from splashdam.record.batch import Codec
from splashdam.record.compression import Compression
from splashdam.record.reader import Record
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import Log

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")


def fill_with_keys(log: Log, seed: int, count: int) -> None:
    """Few keys, much written, cleaned twice: batches with holes, empty ones, empty segments."""
    chance = random.Random(seed)
    for half in (1, 2):
        for _ in range(count // half):
            pairs = [
                (b"%d" % chance.randint(0, 20), chance.choice((None, b"v" * 50)))
                for _ in range(chance.randint(1, 9))
            ]
            compression = Compression(chance.choice((Codec.NONE, Codec.GZIP, Codec.LZ4)))
            log.append_as_leader(keyed(*pairs, compression=compression), now_ms=NOW_MS)
        roll(log)
        clean(DiskFiles(), log)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_random_logs_are_read_once_whatever_the_slices(data: st.DataObject) -> None:
    """With indexes and without, as a whole and in ranges, by committed transactions and all."""
    kind = data.draw(st.sampled_from(["plain", "transactions", "compacted"]))
    seed, count = data.draw(st.integers(0, 10_000)), data.draw(st.integers(1, 40))
    kept: list[Record] = []
    everything: list[Record] = []

    def fill(log: Log) -> None:
        if kind == "plain":
            append_random(log, seed, count)
        elif kind == "transactions":
            kept.extend(append_transactions(log, seed, count)[1])
        else:
            fill_with_keys(log, seed, count)
        markers = {offset for offset, is_control in control_offsets(log) if is_control}
        everything.extend(each for each in read_all(log) if each.offset not in markers)

    with tempfile.TemporaryDirectory() as folder:
        options = COMPACTED if kind == "compacted" else SMALL
        path = partition_on_disk(Path(folder), fill, options)
        committed = kind == "transactions" and data.draw(st.booleans())
        expected = kept if committed else everything
        end = offline(path, committed=committed).offsets("t", [0], -1)[0]
        first = data.draw(st.integers(0, end))
        last = data.draw(st.integers(first, end))
        max_bytes = data.draw(st.sampled_from([1, 400, 3000, 1 << 30]))
        for has_indexes in (True, False):
            if not has_indexes:
                for each in (path / "t-0").glob("*.*index"):
                    if each.suffix != ".txnindex":
                        each.unlink()
            slices = slices_in(path, first=first, end=last, committed=committed, max_bytes=max_bytes)
            found = records_in(slices, committed=committed)
            assert found == [each for each in expected if first <= each.offset < last]


def control_offsets(log: Log) -> list[tuple[int, bool]]:
    """The last offset of each batch, and whether it is a marker."""
    return [(header.last_offset, header.is_control) for header in read_headers(log)]


@pytest.mark.parametrize("kind", ["plain", "transactions", "compacted"])
def test_a_brokers_directory_is_read_as_the_broker_serves_it(tmp_path: Path, kind: str) -> None:
    """To librdkafka and to kafka-python, while it runs; times are found where kafka-python finds them."""

    def fill(log: Log) -> None:
        {"plain": append_random, "transactions": append_transactions, "compacted": fill_with_keys}[kind](
            log, 9, 60
        )

    path = partition_on_disk(tmp_path / "data", fill, COMPACTED if kind == "compacted" else SMALL)
    with EmbeddedBroker(path, port=0) as broker:
        for committed in (False, True):
            expected = served(broker.bootstrap_servers, "t", committed=committed)
            slices = slices_in(path, committed=committed, max_bytes=2500)
            assert records_in(slices, committed=committed) == expected
        theirs = TheirPartition("t", 0)
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        try:
            for late_ms in (-5000, 0, 20, 60_000, 10**9):
                answer = consumer.offsets_for_times({theirs: NOW_MS + late_ms})[theirs]
                ours = offline(path).offsets("t", [0], NOW_MS + late_ms)[0]
                assert ours == (-1 if answer is None else answer.offset)
        finally:
            consumer.close()


@pytest.mark.parametrize(
    ("name", "topic", "counts"),
    [
        ("gold-0-original", "gold", (2080, 2040)),
        ("gold-0-rebuilt-by-kafka", "gold", (2080, 2040)),
        ("goldc-0-compacted", "goldc", (45, 45)),
    ],
)
def test_directories_copied_from_a_running_kafka(
    tmp_path: Path, name: str, topic: str, counts: tuple[int, int]
) -> None:
    """Indexes preallocated with zeros, empty segments, transactions across segments."""
    shutil.copytree(shared(f"golden/{name}"), tmp_path / f"{topic}-0")
    where = TopicPartition(topic, 0)
    for committed, count in zip((False, True), counts, strict=True):
        for max_bytes in (3000, 1 << 30):
            slices = slices_in(tmp_path / f"{topic}-0", where=where, committed=committed, max_bytes=max_bytes)
            found = records_in(slices, committed=committed)
            assert (len(found), len({each.offset for each in found})) == (count, count)
