"""Interceptors: order, replaced records, errors, acknowledgements of all, and no cost without any."""

from __future__ import annotations

import logging
import sys
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from support.scripted.cluster import Trouble

from splashdam.client.interceptors import ProducerInterceptor, ProducerRecord
from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import (
    BufferExhaustedError,
    BulkSendError,
    IllegalArgumentError,
    KafkaConfigurationError,
    PurgedError,
    WouldBlock,
)
from splashdam.model.values import RecordMetadata, TopicPartition


class Diary(ProducerInterceptor):
    """Appends its name to values and notes what it hears."""

    def __init__(self, name: str = "", notes: list[Any] | None = None) -> None:
        self.name = name
        self.notes: list[Any] = [] if notes is None else notes

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return attrs.evolve(record, value=(record.value or b"") + self.name.encode())

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.notes.append((self.name, metadata.topic_partition, metadata.offset, type(error)))

    def close(self) -> None:
        self.notes.append((self.name, "closed"))


class Broken(ProducerInterceptor):
    """Raises in every method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        raise ZeroDivisionError("on_acknowledgement")

    def close(self) -> None:
        raise ZeroDivisionError("close")


class Silent:
    """Has one method, and returns nothing from it."""

    def on_send(self, record: ProducerRecord) -> None:
        """As one forgets to return the record."""


async def test_the_chain_in_order(cluster: Any, autojump_clock: Any) -> None:
    """Each gets what the one before has made; acknowledgements come in order, before the user's callback."""
    notes: list[Any] = []
    async with cluster.producer(interceptors=[Diary("a", notes), Diary("b", notes)]) as producer:
        (await producer.send("one", b"v")).add_callback(lambda metadata: notes.append(metadata.offset))
        assert await producer.flush()
    where = TopicPartition("one", 0)
    assert notes == [
        ("a", where, 0, type(None)),
        ("b", where, 0, type(None)),
        0,
        ("a", "closed"),
        ("b", "closed"),
    ]
    assert cluster.values("one") == [b"vab"]


async def test_everything_of_a_record_may_be_replaced(cluster: Any, autojump_clock: Any) -> None:
    """Topic, key, headers, partition and timestamp; what is seen is what was given, before serializers."""
    seen: list[ProducerRecord] = []

    class Redirect(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record)
            return ProducerRecord("two", value=8, key=b"k", headers={"h": b"1"}, partition=1, timestamp_ms=5)

    serializer = lambda value: str(value).encode()  # noqa: E731
    async with cluster.producer(interceptors=[Redirect()], value_serializer=serializer) as producer:
        metadata = await (await producer.send("one", 7, headers=[("x", None)]))
    assert metadata[:5] == ("two", 1, TopicPartition("two", 1), 0, 5)
    assert seen == [ProducerRecord("one", 7, None, (("x", None),), None, None)]
    record = cluster.scripted.logs[TopicPartition("two", 1)].records[0]
    assert (record.key, record.value, tuple(record.headers)) == (b"k", b"8", (("h", b"1"),))


@pytest.mark.parametrize("bad", [Broken(), Silent()])
async def test_one_that_fails_is_logged_and_left_out(
    cluster: Any, autojump_clock: Any, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The chain goes on with the last good record; nobody else notices."""
    notes: list[Any] = []
    with caplog.at_level(logging.ERROR, "splashdam.client"):
        async with cluster.producer(interceptors=[Diary("a"), bad, Diary("b", notes)]) as producer:
            assert (await (await producer.send("one", b"v"))).offset == 0
    assert cluster.values("one") == [b"vab"]
    assert [note[0] for note in notes] == ["b", "b"]
    assert f"{type(bad).__name__}.on_send()" in caplog.text
    if isinstance(bad, Broken):
        assert "Broken.on_acknowledgement() raised" in caplog.text
        assert "Broken.close() raised" in caplog.text


async def test_records_that_fail_before_a_batch_are_acknowledged_too(
    cluster: Any, autojump_clock: Any
) -> None:
    """Whatever ``send`` raises, and a topic that the cluster refuses; once each, with the same error."""
    cluster.scripted.topic_errors = {"refused": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    diary = Diary()
    async with cluster.producer(interceptors=[diary], max_request_size=1_000) as producer:
        for arguments, kind in (
            ({"topic": "one", "value": "text"}, TypeError),
            ({"topic": "not a topic", "value": b"v"}, ValueError),
            ({"topic": "one", "value": bytes(2_000), "partition": 0}, Exception),
            ({"topic": "one", "value": b"v", "partition": 9}, IllegalArgumentError),
        ):
            with pytest.raises(kind) as raised:
                await producer.send(**arguments)
            assert [note[-1] for note in diary.notes] == [raised.type]
            diary.notes.clear()
        with pytest.raises(WouldBlock):
            producer.send_nowait("two", b"v")
        assert len(diary.notes) == 1
        diary.notes.clear()
        with trio.move_on_after(0.01) as scope:
            await producer.send("nowhere", b"v", partition=9)
        assert scope.cancelled_caught
        assert [note[1:] for note in diary.notes] == [(TopicPartition("nowhere", 9), -1, trio.Cancelled)]


async def test_full_memory_is_acknowledged_once(cluster: Any, autojump_clock: Any) -> None:
    """The record that found no memory, and later those that wait in it."""
    cluster.scripted.produce_script.append(Trouble(delay_ms=5_000))
    diary = Diary()
    async with cluster.producer(
        interceptors=[diary], buffer_memory=20_000, batch_size=4_000, max_block_ms=100
    ) as producer:
        with pytest.raises(BulkSendError, match="buffer_memory"):
            await producer.send_many("one", [bytes(1_000)] * 100)
        assert [note[-1] for note in diary.notes] == [BufferExhaustedError]
        report = await producer.flush()
        assert [note[-1] for note in diary.notes[1:]] == [type(None)] * report.delivered


async def test_failures_of_batches_and_purges(cluster: Any, autojump_clock: Any) -> None:
    """What the broker refuses and what is purged comes with where it should have gone."""
    cluster.scripted.produce_script.append(Trouble(code=ErrorCode.INVALID_RECORD))
    diary = Diary()
    async with cluster.producer(interceptors=[diary], linger_ms=1_000) as producer:
        future = await producer.send("one", b"v")
        await producer.flush()
        assert diary.notes == [("", TopicPartition("one", 0), -1, type(future.exception))]
        await producer.send("one", b"v")
        assert producer.purge() == 1
        await trio.testing.wait_all_tasks_blocked()
        assert diary.notes[1:] == [("", TopicPartition("one", 0), -1, PurgedError)]


async def test_bulk_passes_record_by_record(cluster: Any, autojump_clock: Any) -> None:
    """As if each was sent alone: replaced and acknowledged; ``send_arrow``, which makes none, is refused."""
    diary = Diary("!")
    async with cluster.producer(interceptors=[diary]) as producer:
        assert await (await producer.send_many("one", [b"1", b"2", b"3"]))
        assert [note[2] for note in diary.notes] == [0, 1, 2]
        with pytest.raises(KafkaConfigurationError, match=r"interceptors could see: use send_many\(\)"):
            await producer.send_arrow("one", None)
    assert cluster.values("one") == [b"1!", b"2!", b"3!"]


def test_callbacks_that_send_are_intercepted(tcp_cluster: Any, undelivered: Any) -> None:
    """Records of the sender's own thread pass the chain, be they late."""
    diary = Diary("!")
    with KafkaProducer(bootstrap_servers=tcp_cluster.address, interceptors=[diary]) as producer:
        with undelivered(producer):
            producer.send("one", b"1").add_callback(lambda _metadata: producer.send("two", b"2", partition=0))
        producer.flush()
    assert [note[1] for note in diary.notes[:-1]] == [TopicPartition("one", 0), TopicPartition("two", 0)]
    assert tcp_cluster.values("two") == [b"2!"]


def test_none_cost_nothing(tcp_cluster: Any) -> None:
    """The fast path stays open, and with any it is closed: one flag, looked at in any case."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        producer.prepare("one")
        producer.send("one", b"v")
        assert not producer._path.detour
        assert producer._path.try_send("one", b"v") is not None
    with KafkaProducer(bootstrap_servers=tcp_cluster.address, interceptors=[Diary()]) as producer:
        assert producer._path.detour


def test_classes_by_name() -> None:
    """Kafka's own property takes dotted names of Python classes."""
    name = f"{Diary.__module__}.{Diary.__qualname__}"
    sys.modules[Diary.__module__] = sys.modules[__name__] if __name__ in sys.modules else _this_module()
    with KafkaProducer.from_properties({"interceptor.classes": f"{name}, {name}"}) as producer:
        assert [type(each).__name__ for each in producer.config["interceptors"]] == ["Diary", "Diary"]
    with pytest.raises(
        KafkaConfigurationError, match=r"'no\.such\.Class' is not a class that can be instantiated"
    ):
        KafkaProducer.from_properties({"interceptor.classes": "no.such.Class"})


def _this_module() -> Any:
    module = type(sys)(__name__)
    module.__dict__.update(globals())
    return module


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Diary(), "must be a list of interceptors, not Diary"),
        ([Diary], "Diary is a class: give an object of it"),
        ([object()], r"object has neither on_send\(\) nor on_acknowledgement\(\)"),
    ],
)
def test_what_is_no_chain(given: Any, problem: str) -> None:
    """Said when the producer is made."""
    with pytest.raises(KafkaConfigurationError, match=problem):
        KafkaProducer(interceptors=given)
