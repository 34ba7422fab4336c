"""Measures how long a client with small requests waits while another client sends expensive ones.

One client sends a record, waits for the answer (acks=all), and sends the next. In another process a
"stranger" keeps sending expensive requests: few bytes that decompress to many, or many elements. The
table has the longest wait, the 99th percentile, and the stranger's answers per second. With fewer than
100 waits the percentile is the longest wait.
"""

from __future__ import annotations

import itertools
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from broker.raw_client import PRODUCE_VERSION, batch_of, produce_frame, produce_one, read_frame
from broker.raw_client import TOPIC as QUIET
from broker.running import Address, Start, Topic, await_answer, create_topics
from splashdam.record.compression import Compression
from splashdam.record.sealing import build_batch
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.message import Request
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from splashdam.wire.registry import API_KEYS

RECORD_BYTES = 100
BOMB_BYTES = 95 << 20
BOMBS = 2
"""Number of bombs in flight."""

LOOKUPS, BATCHES = 40, 100
"""Requests in flight, and partitions in each, with one batch per partition to decompress."""

BATCH_RECORDS, BATCH_VALUE_BYTES = 1000, 1000
NEW_TOPICS, CREATIONS = 100, 50
"""Topics in a request, and number of different requests; after them all topics exist."""

LARGE_TOPICS, LARGE_PARTITIONS = 5, 2_000
"""Topics that are created and deleted one by one, and their partitions; after them the answers are cheap."""

NAMED, NAMING = 16_000, 4
"""Elements of a request, and number of such requests in flight."""

FIRST_MS = 1_700_000_000_000
NOBODY = "nobody's"
_LARGE = {"max.message.bytes": "100000000"}
TOPICS = (
    Topic(QUIET),
    Topic("compacted", 1, {**_LARGE, "cleanup.policy": "compact"}),
    Topic("packed", 1, {**_LARGE, "compression.type": "zstd"}),
    Topic("timed", BATCHES),
)


class Stranger(NamedTuple):
    """One kind of expensive requests.

    Attributes:
        requests: sent one after the other, again and again.
        version: of the requests.
        in_flight: number of requests sent before their answers are read.
        did_work: returns whether an answer shows that the broker has done the work.
    """

    requests: Sequence[Request[Any]]
    version: int
    in_flight: int
    did_work: Callable[[Any], bool]

    def frames(self) -> list[bytes]:
        """Return the encoded requests."""
        return [
            b"".join(encode_request(each, version=self.version, correlation_id=1, client_id="stranger"))
            for each in self.requests
        ]

    def check(self, frame: bytes) -> None:
        """End the program if the broker has not done the work, because the figure would be wrong."""
        request = self.requests[0]
        _, answer = decode_response(frame, API_KEYS[request.API_KEY].response, self.version)
        if not self.did_work(answer):
            raise SystemExit(f"{type(request).__name__} did not do what it is measured for: {answer}"[:500])


class Waited(NamedTuple):
    """The waits of the client beside one stranger."""

    p99_ms: float
    longest_ms: float
    strange_per_s: float


def strangers() -> dict[str, Stranger]:
    """Return all strangers; they use `TOPICS`, with the batches of `timed_frames`."""
    unknown = list(range(NAMED))
    elections = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=NOBODY, partitions=unknown)])
    additions = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NOBODY,
        v3_and_below_producer_id=1,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=NOBODY, partitions=unknown)],
    )
    return {
        "zstd bombs, compacted": _producing("compacted", "zstd"),
        "lz4 bombs, to be zstd": _producing("packed", "lz4"),
        "ListOffsets by time": Stranger([_by_time()], 6, LOOKUPS, _found_all),
        "CreateTopics": Stranger(
            [_creation(f"new-{each}", NEW_TOPICS, 1) for each in range(CREATIONS)], 5, 1, _created_all
        ),
        "ElectLeaders": Stranger(
            [elections],
            2,
            NAMING,
            lambda answer: _counted(answer.replica_election_results, "partition_result"),
        ),
        "AddPartitionsToTxn": Stranger(
            [additions],
            3,
            NAMING,
            lambda answer: _counted(answer.results_by_topic_v3_and_below, "results_by_partition"),
        ),
        "CreateTopics, large": Stranger(
            [_creation(f"large-{each}", 1, LARGE_PARTITIONS) for each in range(LARGE_TOPICS)],
            5,
            1,
            _created_all,
        ),
        "DeleteTopics, large": Stranger(
            [
                DeleteTopicsRequest(topic_names=[f"large-{each}-0"], timeout_ms=30_000)
                for each in range(LARGE_TOPICS)
            ],
            5,
            1,
            lambda answer: not answer.responses[0].error_code,
        ),
    }


def _producing(topic: str, codec: str) -> Stranger:
    bomb = build_batch([(FIRST_MS, b"k", bytes(BOMB_BYTES), None)], Compression.parse(codec))
    return Stranger(
        [_produce_request(topic, 0, bomb)],
        PRODUCE_VERSION,
        BOMBS,
        lambda answer: not answer.responses[0].partition_responses[0].error_code,
    )


def _produce_request(topic: str, partition: int, batch: bytes) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def timed_frames() -> list[bytes]:
    """Return Produce requests to send beforehand: per partition a batch that decompresses to 1 MB."""
    records = [(FIRST_MS + number, None, bytes(BATCH_VALUE_BYTES), None) for number in range(BATCH_RECORDS)]
    batch = build_batch(records, Compression.parse("zstd"))
    requests = [_produce_request("timed", partition, batch) for partition in range(BATCHES)]
    return Stranger(requests, PRODUCE_VERSION, 1, bool).frames()


def _by_time() -> ListOffsetsRequest:
    """Return a search by time for the last record of each batch, which must walk the whole batch."""
    last_ms = FIRST_MS + BATCH_RECORDS - 1
    asked = [ListOffsetsPartition(partition_index=each, timestamp=last_ms) for each in range(BATCHES)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="timed", partitions=asked)])


def _found_all(answer: Any) -> bool:
    return [each.offset for each in answer.topics[0].partitions] == [BATCH_RECORDS - 1] * BATCHES


def _creation(beginning: str, count: int, partitions: int) -> CreateTopicsRequest:
    names = [f"{beginning}-{each}" for each in range(count)]
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000)


def _created_all(answer: Any) -> bool:
    return {each.error_code for each in answer.topics} == {0}


def _counted(topics: Sequence[Any], field: str) -> bool:
    return sum(len(getattr(each, field)) for each in topics) == NAMED


def ask(address: Address, stranger: Stranger, line: Connection) -> None:
    """Send a stranger's requests until ``line`` has a message; then report the answers per second on it.

    A first message on ``line`` says that the first answer has come. That answer is not counted, and at least
    one more round is sent.
    """
    frames = itertools.cycle(stranger.frames())
    with socket.create_connection(address) as connection:
        connection.sendall(next(frames))
        stranger.check(read_frame(connection))
        line.send(None)
        began, answered = time.perf_counter(), 0
        while not (answered and line.poll()):
            for _ in range(stranger.in_flight):
                connection.sendall(next(frames))
            for _ in range(stranger.in_flight):
                read_frame(connection)
                answered += 1
        line.send(answered / (time.perf_counter() - began))


def waits_ms(connection: socket.socket, seconds: float) -> list[float]:
    """Send small requests for some seconds, and return how long each waited."""
    frame, waits = produce_frame(batch_of(1, RECORD_BYTES)), []
    first, _ = produce_one(connection, frame)
    until = time.perf_counter() + seconds
    while (sent := time.perf_counter()) < until:
        connection.sendall(frame)
        read_frame(connection)
        waits.append((time.perf_counter() - sent) * 1000)
    last, _ = produce_one(connection, frame)
    if last - first != len(waits) + 1:
        raise SystemExit(f"{last - first:,} records arrived, {len(waits) + 1:,} were sent")
    return waits


def measure(address: Address, stranger: Stranger | None, seconds: float) -> Waited:
    """Measure the client beside one stranger, or alone."""
    with socket.create_connection(address) as ours:
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if stranger is None:
            return waited(waits_ms(ours, seconds), 0.0)
        # A process, because a thread would take the interpreter's lock from the measured client.
        processes = get_context("fork")
        line, theirs = processes.Pipe()
        asking = processes.Process(target=ask, args=(address, stranger, theirs))
        asking.start()
        theirs.close()
        try:
            line.recv()
            waits = waits_ms(ours, seconds)
            line.send(None)
            return waited(waits, line.recv())
        except (EOFError, BrokenPipeError):
            raise SystemExit("the stranger has ended; its output says why") from None
        finally:
            asking.terminate()
            asking.join()
            line.close()


def waited(waits: Sequence[float], strange_per_s: float) -> Waited:
    """Return the figures of some waits in ms."""
    return Waited(sorted(waits)[len(waits) * 99 // 100], max(waits), strange_per_s)


def run(starts: Mapping[str, Start], rounds: int, seconds: float) -> None:
    """Measure the brokers in turns, a fresh process each round, and print the figures."""
    asked: dict[str, Stranger | None] = {"nobody": None, **strangers()}
    found: dict[tuple[str, str], list[Waited]] = {}
    for _, (name, start) in itertools.product(range(rounds), starts.items()):
        with tempfile.TemporaryDirectory() as home, start(Path(home)) as running:
            await_answer(running.address)
            create_topics(running.address, TOPICS)
            with socket.create_connection(running.address) as connection:
                for frame in timed_frames():
                    produce_one(connection, frame)
            for what, stranger in asked.items():
                found.setdefault((what, name), []).append(measure(running.address, stranger, seconds))
    print(f"a client's waits beside a stranger, {seconds:g} s each; medians of {rounds}")
    print(f"{'':23}" + "".join(f"{name:>36}" for name in starts))
    heads = "".join(f"{head:>12}" for head in ("p99 ms", "longest ms", "stranger/s"))
    print(f"{'':23}" + heads * len(starts))
    for what in asked:
        cells = "".join(_row(found[what, name]) for name in starts)
        print(f"{what:23}{cells}")


def _row(done: Sequence[Waited]) -> str:
    medians = [statistics.median(values) for values in zip(*done, strict=True)]
    return f"{medians[0]:12,.2f}{medians[1]:12,.1f}{medians[2]:12,.1f}"
