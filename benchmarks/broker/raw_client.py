"""The simplest client: it writes prepared requests to a blocking socket, and counts answers."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from splashdam.record.batch import HEADER_BYTES
from splashdam.record.sealing import build_batch, restamp_producer
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = "bench"
PRODUCER_ID = 1
CREATE_VERSION, PRODUCE_VERSION, FETCH_VERSION = 5, 9, 11


@contextmanager
def broker(data: Path) -> Iterator[socket.socket]:
    """A connection to a broker in a process of its own, with one topic of one partition."""
    command = [sys.executable, "-m", "splashdam.cli", "broker", "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().removeprefix("listening on ").rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _create_topic(connection)
            yield connection
    finally:
        process.terminate()
        process.wait()


def _create_topic(connection: socket.socket) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic])
    parts = encode_request(request, version=CREATE_VERSION, correlation_id=0, client_id="bench")
    connection.sendall(b"".join(parts))
    _, response = decode_response(read_frame(connection), CreateTopicsResponse, CREATE_VERSION)
    if response.topics[0].error_code:
        raise SystemExit(f"the broker refused the topic: {response.topics[0].error_message}")


def read_frame(connection: socket.socket) -> bytes:
    """One answer, without its size."""
    size = int.from_bytes(read_exactly(connection, 4), "big")
    return bytes(read_exactly(connection, size))


def read_exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    receive(connection, memoryview(data))
    return data


def receive(connection: socket.socket, view: memoryview) -> None:
    """Receive until the view is full."""
    while view:
        count = connection.recv_into(view)
        if not count:
            raise SystemExit("the other side closed the connection")
        view = view[count:]


def produce_frame(batch: bytes) -> bytes:
    """A produce request with acks=all."""
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return b"".join(encode_request(request, version=PRODUCE_VERSION, correlation_id=1, client_id="bench"))


def fetch_frame(offset: int, max_bytes: int) -> bytes:
    """A fetch request that does not wait."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic=TOPIC, partitions=[part])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[topic])
    return b"".join(encode_request(request, version=FETCH_VERSION, correlation_id=1, client_id="bench"))


def batch_of(records: int, size: int) -> bytes:
    """A batch of equal records."""
    return build_batch([(1_700_000_000_000, None, b"x" * size, None)] * records)


class ProduceFrames:
    """Produce requests of one idempotent producer: the same records with consecutive sequence numbers.

    Headers with their checksums are made beforehand, so a request costs only a copy of its header.
    """

    def __init__(self, records: int, size: int, count: int) -> None:
        batch = batch_of(records, size)
        frame = produce_frame(batch)
        start = frame.index(batch)
        self._frame = bytearray(frame)
        self._batch = memoryview(self._frame)[start : start + len(batch)]
        self._headers = []
        for number in range(count):
            restamp_producer(self._batch, PRODUCER_ID, 0, number * records)
            self._headers.append(bytes(self._batch[:HEADER_BYTES]))

    def frame(self, number: int) -> bytearray:
        """Return the request with this number; all requests share one buffer."""
        self._batch[:HEADER_BYTES] = self._headers[number]
        return self._frame


def converse(
    connection: socket.socket,
    send: Callable[[int, int], object],
    count: int,
    in_flight: int,
    answer_bytes: int,
) -> None:
    """Send requests, with a fixed number in flight, and read their answers, which all have the same size.

    Args:
        connection: to the broker.
        send: sends the requests of a half-open range of numbers.
        count: number of requests.
        in_flight: number of requests sent before the first answer.
        answer_bytes: of each answer, with its size field.
    """
    answers = memoryview(bytearray(max(answer_bytes, 1 << 16)))
    sent, pending, left = min(in_flight, count), 0, count * answer_bytes
    send(0, sent)
    while left:
        received = connection.recv_into(answers)
        if not received:
            raise SystemExit("the broker closed the connection")
        left -= received
        whole, pending = divmod(pending + received, answer_bytes)
        more = min(whole, count - sent)
        if more:
            send(sent, sent + more)
            sent += more


def produce_one(connection: socket.socket, frame: bytes | bytearray) -> tuple[int, int]:
    """Send one produce request; return the base offset of its batch, and the size of the answer.

    Raises:
        SystemExit: the broker refused it.
    """
    connection.sendall(frame)
    answer = read_frame(connection)
    _, response = decode_response(answer, ProduceResponse, PRODUCE_VERSION)
    result = response.responses[0].partition_responses[0]
    if result.error_code:
        raise SystemExit(f"the broker refused a batch: error {result.error_code}, {result.error_message}")
    return result.base_offset, len(answer) + 4
