"""The common sink: both programs answer every client alike, and count what arrived."""

from __future__ import annotations

import importlib
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.running.house_tree import ROOT

from splashdam.client.producer import KafkaProducer
from splashdam.record.sealing import build_batch
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH = build_batch([(1_000, None, b"one", None), (1_001, b"k", b"two", None)])


@pytest.fixture(params=["c", "python"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A running sink, once as compiled program and once in Python."""
    if request.param == "c" and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    sinks = importlib.import_module("sink.running")
    _, command = sinks.sink_command(request.param, tmp_path)
    with sinks.RunningSink(command) as running:
        yield running


@contextmanager
def connected(sink: Any) -> Iterator[Any]:
    host, port = sink.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer, peer.makefile("rwb") as stream:
        yield stream


def ask(stream: Any, request: Any, response: Any, version: int) -> Any:
    """Sends one request; the answer, of which not a byte may be left over."""
    for part in encode_request(request, version=version, correlation_id=version, client_id="test"):
        stream.write(part)
    stream.flush()
    frame = stream.read(int.from_bytes(stream.read(4), "big"))
    correlation_id, message = decode_response(frame, response, version)
    assert correlation_id == version
    return message


def produce_request(*batches: bytes, acks: int = -1) -> ProduceRequest:
    partitions = [PartitionProduceData(index=n, records=batch) for n, batch in enumerate(batches)]
    topic = TopicProduceData(name="t", partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


def test_every_version_is_answered(sink: Any) -> None:
    """Each answer decodes in each version that the sink offers."""
    with connected(sink) as stream:
        for version in range(5):
            answer = ask(stream, ApiVersionsRequest(), ApiVersionsResponse, version)
            offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        for version in range(offered[3][0], offered[3][1] + 1):
            topics = [MetadataRequestTopic(name="t")]
            answer = ask(stream, MetadataRequest(topics=topics), MetadataResponse, version)
            assert [node.port for node in answer.brokers] == [int(sink.bootstrap.split(":")[1])]
            assert [part.partition_index for part in answer.topics[0].partitions] == [0, 1, 2, 3]
            assert {part.leader_id for part in answer.topics[0].partitions} == {answer.brokers[0].node_id}
        for version in range(offered[22][0], offered[22][1] + 1):
            request = InitProducerIdRequest(transaction_timeout_ms=0)
            answer = ask(stream, request, InitProducerIdResponse, version)
            assert answer.producer_id >= 1_000
        for version in range(offered[0][0], offered[0][1] + 1):
            answer = ask(stream, produce_request(BATCH, BATCH + BATCH), ProduceResponse, version)
            results = [(part.index, part.error_code) for part in answer.responses[0].partition_responses]
            assert results == [(0, 0), (1, 0)]
    versions = offered[0][1] - offered[0][0] + 1
    assert sink.counts() == {
        "records": 6 * versions,
        "bytes": 3 * len(BATCH) * versions,
        "batches": 3 * versions,
        "requests": versions,
    }


def test_without_acks_there_is_no_answer(sink: Any) -> None:
    """acks=0 is counted and not answered."""
    with connected(sink) as stream:
        for part in encode_request(
            produce_request(BATCH, acks=0), version=9, correlation_id=1, client_id=None
        ):
            stream.write(part)
        answer = ask(
            stream, ApiVersionsRequest(), ApiVersionsResponse, 4
        )  # the next answer is of the next one
        assert answer.error_code == 0
    assert sink.counts()["records"] == 2


@pytest.mark.parametrize("damage", ["truncated", "magic"])
def test_damaged_batches_end_the_run(sink: Any, damage: str) -> None:
    """Bytes that are no batch are not counted: the sink stops with an error."""
    batch = bytearray(BATCH)
    batch[16] = 1
    with connected(sink) as stream:
        bad = BATCH[:-1] if damage == "truncated" else bytes(batch)
        for part in encode_request(produce_request(bad), version=9, correlation_id=1, client_id=None):
            stream.write(part)
        stream.flush()
        assert stream.read() == b""
    with pytest.raises(RuntimeError, match="the sink failed"):
        sink.counts()


def test_the_far_sink_answers_in_order_and_counts() -> None:
    """Late, but all of it: several batches are under way at once, each is answered once."""
    distance, sinks = map(importlib.import_module, ("comparison.distance", "sink.running"))
    command = [*distance.far_sink_command()[:-1], "5"]
    with sinks.RunningSink(command, distance.PARTITIONS) as sink:
        with KafkaProducer(bootstrap_servers=sink.bootstrap, batch_size=0, linger_ms=0) as producer:
            futures = [producer.send("bench", b"%d" % number) for number in range(30)]
            assert all(future.get(timeout=300).offset == 0 for future in futures)  # it stores nothing
        counts = sink.counts()
    assert (counts["records"], counts["batches"]) == (30, 30)
