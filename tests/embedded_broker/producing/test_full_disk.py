"""A full disk: every client hears why, nothing overtakes what was refused, and with room it goes on."""

from __future__ import annotations

import errno
import logging

import pytest
import trio
from support.broker.broker_talk import Talk, batch, produce, produce_request
from support.broker.cluster_kit import open_cluster
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.controller.election import moved
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.admin.groups import commit_offsets, committed_offsets
from splashdam.net.admin.topics import create_partitions, create_topic
from splashdam.net.cluster.cluster_client import open_cluster_client
from splashdam.net.memory import MemoryNetwork
from splashdam.record.batch import iter_headers
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.produce import ProduceResponse

T0 = TopicPartition("t", 0)
DISK_FAILURES = "splashdam.embedded_broker.topics.disk_failures"


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic."""
    broker.topics.create("t", 2)
    return broker


def numbered(number: int, size: int = 1) -> bytes:
    """A producer's batch, whose sequence is its number."""
    value = b"%d" % number + b"." * size
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=number)


def said_of_disks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == DISK_FAILURES]


def sequences(broker: Broker) -> list[int]:
    piece = broker.logs.logs[T0].read(0, 1 << 20)
    return [header.base_sequence for _, header in iter_headers(bytes(piece.read()))]


@pytest.mark.parametrize("first", [0, 1], ids=["unknown producer", "known producer"])
async def test_batches_behind_a_refused_one_get_its_cause(
    broker: Broker, talk: Talk, files: MemoryFiles, first: int
) -> None:
    """The large one does not fit, the small ones behind it would: they are answered 56 too, and not 45."""
    for number in range(first):
        assert (await produce(talk, "t", numbered(number))).error_code == 0
    files.capacity_bytes = files.used_bytes + 900
    sent = [numbered(first, 2_000), numbered(first + 1), numbered(first + 2)]
    for each in sent:
        await talk.send(produce_request("t", each), 9)
    for _ in sent:
        answer: ProduceResponse = await talk.answer()
        refused = answer.responses[0].partition_responses[0]
        assert refused.error_code == 56
        assert "No space left on device; make room" in (refused.error_message or "")
        assert "/data/t-0/" in (refused.error_message or "")
    files.capacity_bytes = None
    for each in sent:
        assert (await produce(talk, "t", each)).error_code == 0
    assert sequences(broker) == list(range(first + 3))


async def test_a_gap_is_a_gap_again_once_the_refused_batch_was_given_up(
    broker: Broker, talk: Talk, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """After Kafka's delivery.timeout.ms, and at once under another epoch."""
    assert (await produce(talk, "t", numbered(0))).error_code == 0
    files.inject(Fault(errno.ENOSPC))
    assert (await produce(talk, "t", numbered(1))).error_code == 56
    assert (await produce(talk, "t", numbered(2))).error_code == 56
    autojump_clock.jump(121)
    assert (await produce(talk, "t", numbered(2))).error_code == 45
    fresh = batch(b"x", producer_id=7, producer_epoch=1, base_sequence=0)
    assert (await produce(talk, "t", fresh)).error_code == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
async def test_a_disk_failure_is_logged_once_and_so_is_its_end(
    broker: Broker, talk: Talk, files: MemoryFiles, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for each batch, nor for each partition."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    for partition in (0, 1):
        assert (await produce(talk, "t", batch(b"x"), partition=partition)).error_code == 0
    for _ in range(6):
        for partition in (0, 1):
            files.inject(Fault(number, times=1))
            assert (await produce(talk, "t", batch(b"x"), partition=partition)).error_code == 56
    files.heal()
    for partition in (0, 1):
        assert (await produce(talk, "t", batch(b"x"), partition=partition)).error_code == 0
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "cannot append to t-0: could not append to /data/t-0/" in said[0]
    assert said[1] == "appends to /data are taken again; 12 batches were refused"


async def test_a_trouble_ends_with_its_topic(
    broker: Broker, talk: Talk, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end was once never said, and what it had refused counted into the next trouble."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    other = broker.topics.create("other", 1)
    files.inject(Fault(errno.ENOSPC, times=1))
    assert (await produce(talk, "other", batch(b"x"))).error_code == 56
    broker.topics.delete(other)
    files.inject(Fault(errno.EDQUOT, times=1))
    assert (await produce(talk, "t", batch(b"x"))).error_code == 56
    assert (await produce(talk, "t", batch(b"x"))).error_code == 0
    first, *said = [record.getMessage() for record in caplog.records]
    assert "cannot append to other-0" in first
    assert said.pop(1).startswith("cannot append to t-0")
    assert said == [
        "what could not be appended to in /data is gone; 1 batches were refused",
        "appends to /data are taken again; 1 batches were refused",
    ]


async def test_a_trouble_is_the_same_however_it_is_worded(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an error of the system, each text was once a trouble of its own, and kept."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    for number in range(20):
        broker.disk_failures.append_failed(
            T0, KafkaStorageError(f"the batch with sequence {number} comes first")
        )
    broker.parking.appended(T0, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "cannot append to t-0: the batch with sequence 0 comes first",
        "appends to /data are taken again; 20 batches were refused",
    ]


async def test_two_troubles_end_by_themselves(
    network: MemoryNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of two disks is said to take appends again when it does, whatever the other one does."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    async with open_broker(
        "/a", host="b", port=1, listen=network.listen, files=MemoryFiles(), log_dirs="/a,/b"
    ) as broker:
        broker.topics.create("t", 2)
        by_root = {broker.logs.root_of(each): each for each in (T0, TopicPartition("t", 1))}
        full = KafkaStorageError("no room")
        full.__cause__ = OSError(errno.ENOSPC, "No space left on device")
        for each in by_root.values():
            broker.disk_failures.append_failed(each, full)
        broker.parking.appended(by_root["/b"], 1)
    assert [record.getMessage() for record in caplog.records][2:] == [
        "appends to /b are taken again; 1 batches were refused"
    ]


async def test_a_trouble_ends_with_the_leadership(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another broker takes the appends from then on."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        cluster.nodes[1].broker.disk_failures.append_failed(T0, KafkaStorageError("no room"))
        cluster.nodes[1].broker.parking.changed(T0)
        assert len(caplog.records) == 1
        cluster.controller.change_partitions(
            {T0: moved(cluster.state, 2, cluster.controller.state.is_eligible)}
        )
        await cluster.settle()
        assert caplog.records[1].getMessage().endswith("is gone; 1 batches were refused")


async def test_the_client_names_the_full_disk_for_every_batch(
    broker: Broker, network: MemoryNetwork, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """Two of three once ended as OutOfOrderSequenceNumber, and spoke of records lost in the cluster."""
    producer = AsyncKafkaProducer(
        connect=network.connect,
        clock=VirtualClock(autojump_clock),
        bootstrap_servers="broker:9092",
        batch_size=0,
        linger_ms=0,
        request_timeout_ms=1_000,
        delivery_timeout_ms=2_000,
    )
    async with producer:
        await (await producer.send("t", b"before", partition=0))
        files.capacity_bytes = files.used_bytes
        futures = [await producer.send("t", b"%d" % number, partition=0) for number in range(3)]
        for future in futures:
            with pytest.raises((KafkaStorageError, KafkaTimeoutError), match="No space left on device"):
                await future
        files.capacity_bytes = None
        metadata = await (await producer.send("t", b"after", partition=0))
        assert metadata.offset == 1


async def test_a_start_that_fails_says_to_start_again(network: MemoryNetwork) -> None:
    """It once said that the broker goes on, although the start had failed."""
    with pytest.raises(
        KafkaStorageError, match="make room on this disk, and start the broker again"
    ) as caught:
        async with open_broker(
            "/data", host="b", port=1, listen=network.listen, files=MemoryFiles(capacity_bytes=0)
        ):
            pass
    assert "goes on" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_topic_that_a_full_disk_refuses_is_refused_at_once_and_logged_once(
    broker: Broker,
    network: MemoryNetwork,
    files: MemoryFiles,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A command once asked for 10 s, and the log that it named said nothing."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    files.inject(Fault(errno.ENOSPC, times=None))
    began = trio.current_time()
    async with open_cluster_client(
        [("broker", 9092)], connect=network.connect, clock=VirtualClock(autojump_clock)
    ) as client:
        for change in (create_topic(client, "u"), create_partitions(client, "t", 3)):
            with pytest.raises(KafkaStorageError, match="No space left on device; make room on this disk"):
                await change
    assert trio.current_time() == began
    files.heal()
    (said,) = said_of_disks(caplog)
    assert said.startswith("cannot create topic 'u': could not ")


async def test_a_commit_that_a_full_disk_refuses_names_the_cause(
    broker: Broker,
    network: MemoryNetwork,
    files: MemoryFiles,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """OffsetCommit has a code and no text: only CoordinatorNotAvailable was shown. With room it goes on."""
    caplog.set_level(logging.WARNING, DISK_FAILURES)
    files.inject(Fault(errno.ENOSPC, times=None))
    async with open_cluster_client(
        [("broker", 9092)], connect=network.connect, clock=VirtualClock(autojump_clock)
    ) as client:
        with pytest.raises(
            KafkaTimeoutError, match=r"__consumer_offsets cannot be made: .*No space left on device"
        ):
            await commit_offsets(client, "g", {T0: OffsetAndMetadata(3)})
        assert len(said_of_disks(caplog)) == 1
        files.heal()
        await commit_offsets(client, "g", {T0: OffsetAndMetadata(3)})
        assert await committed_offsets(client, "g") == {T0: OffsetAndMetadata(3)}
