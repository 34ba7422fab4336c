"""``splashdam.aiokafka``: aiokafka's constructor, arguments, batches and errors, on our producer."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.scripted.cluster import Trouble

import splashdam.aiokafka
from splashdam import EmbeddedBroker
from splashdam.aiokafka import (
    AIOKafkaProducer,
    IllegalOperation,
    MessageSizeTooLargeError,
    ProducerClosed,
    ProducerFenced,
)
from splashdam.client.asyncio_producer import TokensFromTheLoop
from splashdam.model.broker_errors import ErrorCode, InvalidRecordError
from splashdam.model.errors import KafkaConfigurationError, KafkaTimeoutError, SaslError
from splashdam.net.sasl.mechanisms import Credentials
from splashdam.net.sasl.oauthbearer import open_client
from splashdam.net.sasl.oidc import OidcTokenProvider
from splashdam.wire.messages.produce import ProduceRequest


def test_the_constructor_takes_aiokafkas_names() -> None:
    """All of them; other options of ours, too, and nothing else."""
    theirs = pytest.importorskip("aiokafka").AIOKafkaProducer
    names = [name for name in inspect.signature(theirs.__init__).parameters if name != "self"]
    own = set(inspect.signature(AIOKafkaProducer.__init__).parameters) | set(AIOKafkaProducer.DEFAULT_CONFIG)
    assert set(names) - own == set()
    producer = AIOKafkaProducer(max_batch_size=1000, acks=1, request_timeout_ms=500, buffer_memory=2**20)
    config = producer.config
    assert (config["batch_size"], config["acks"], config["enable_idempotence"]) == (1000, 1, False)
    assert (config["linger_ms"], config["request_timeout_ms"], config["delivery_timeout_ms"]) == (
        0,
        500,
        1000,
    )
    assert AIOKafkaProducer().config["acks"] == -1
    assert AIOKafkaProducer(transactional_id="t", enable_idempotence=False).config["enable_idempotence"]
    for wrong in (
        {"acks": 122},
        {"acks": 1.0},
        {"acks": 1, "enable_idempotence": True},
        {"compression_type": "my"},
        {"x": 1},
    ):
        with pytest.raises(KafkaConfigurationError):
            AIOKafkaProducer(**wrong)
    without_effect: list[tuple[str, Any]] = [("api_version", "auto"), ("api_version", "newest"), ("loop", 3)]
    for name, given in without_effect:
        with pytest.warns(DeprecationWarning, match=f"{name} has no effect"):
            AIOKafkaProducer(**{name: given})


@pytest.mark.parametrize("name", ["linger_ms", "request_timeout_ms", "max_batch_size"])
@pytest.mark.parametrize("wrong", ["5", None, -1, float("nan"), float("inf"), True])
def test_a_wrong_option_was_told_by_the_name_of_another_one(name: str, wrong: Any) -> None:
    """``max_block_ms``, ``delivery_timeout_ms`` or ``batch_size``, made of them; a text failed in a sum."""
    if (name, wrong) == ("max_batch_size", None):
        AIOKafkaProducer(**{name: wrong})  # the default
        return
    with pytest.raises(KafkaConfigurationError, match=f"^{name}={wrong!r}: must be a"):
        AIOKafkaProducer(**{name: wrong})


def test_whole_numbers_of_other_types_were_refused() -> None:
    """Such as numpy's, and the error did not show them."""

    class Five:
        def __index__(self) -> int:
            return 5

    five: dict[str, Any] = dict.fromkeys(["max_batch_size", "linger_ms", "request_timeout_ms"], Five())
    config = AIOKafkaProducer(**five, max_request_size=Five(), acks=1).config
    assert (config["batch_size"], config["max_request_size"], config["delivery_timeout_ms"]) == (5, 5, 15)
    assert type(config["batch_size"]) is int


def test_long_times_were_told_as_a_delivery_timeout() -> None:
    """Which is computed from them, and has Kafka's limit of its own."""
    longest = 2**31 - 1
    config = AIOKafkaProducer(request_timeout_ms=longest, linger_ms=longest).config
    assert config["delivery_timeout_ms"] == longest
    for name in ("request_timeout_ms", "linger_ms"):
        with pytest.raises(KafkaConfigurationError, match=f"^{name}=2147483648: must be at most 2147483647"):
            AIOKafkaProducer(**{name: 2**31})


def test_acks_none_meant_all_instead_of_nothing() -> None:
    """aiokafka refuses it, too; a program that computes its options learns that one is missing."""
    with pytest.raises(KafkaConfigurationError, match=r"^acks=None: must be one of -1, 0, 1, 'all'"):
        AIOKafkaProducer(acks=None)  # type: ignore[arg-type]  # the test is about this value
    assert AIOKafkaProducer(acks="all").config["enable_idempotence"] is True


def test_a_login_without_a_mechanism_was_refused() -> None:
    """aiokafka's default is PLAIN."""
    login: dict[str, Any] = {"sasl_plain_username": "anna", "sasl_plain_password": "hunter2"}
    producer = AIOKafkaProducer(security_protocol="SASL_PLAINTEXT", **login)
    assert producer.config["sasl_mechanism"] == "PLAIN"
    assert AIOKafkaProducer().config["sasl_mechanism"] is None
    with pytest.raises(
        KafkaConfigurationError, match=r"^sasl_plain_username and sasl_plain_password are missing"
    ):
        AIOKafkaProducer(security_protocol="SASL_PLAINTEXT")
    with pytest.raises(KafkaConfigurationError, match="sasl_mechanism is missing"):
        AIOKafkaProducer(security_protocol="SASL_PLAINTEXT", sasl_mechanism=None, **login)


def test_connections_that_are_never_idle_were_refused(tcp_cluster: Any) -> None:
    """None, as in aiokafka."""

    async def main() -> None:
        options: dict[str, Any] = {"connections_max_idle_ms": None}
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            assert producer.config["connections_max_idle_ms"] == 2**63 - 1
            await producer.send_and_wait("one", b"v")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("protocol", "ignored"),
    [
        ("PLAINTEXT", "ssl_context, sasl_plain_username, sasl_plain_password, sasl_mechanism"),
        ("plaintext", "ssl_context, sasl_plain_username, sasl_plain_password, sasl_mechanism"),
        ("SSL", "sasl_plain_username, sasl_plain_password, sasl_mechanism"),
        ("SASL_PLAINTEXT", "ssl_context"),
    ],
)
def test_security_options_that_the_protocol_does_not_use_were_refused(
    protocol: str, ignored: str, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka ignores them; programs give all of them, and let the environment choose the protocol."""
    options: dict[str, Any] = {"ssl_context": ssl.create_default_context(), "sasl_kerberos_domain_name": None}
    options |= {"sasl_plain_username": "anna", "sasl_plain_password": "hunter2"}
    AIOKafkaProducer(security_protocol=protocol, sasl_mechanism="SCRAM-SHA-256", client_id="c", **options)
    assert caplog.messages == [f"c: {ignored}: ignored with security_protocol={protocol.upper()!r}"]


def test_unknown_options_are_refused_beside_ignored_ones(caplog: pytest.LogCaptureFixture) -> None:
    """What looks like one for TLS is no option for that."""
    with pytest.raises(KafkaConfigurationError, match="unknown producer option 'ssl_contxt'"):
        AIOKafkaProducer(ssl_contxt=ssl.create_default_context())
    assert not caplog.messages
    AIOKafkaProducer(ssl_context=None, sasl_mechanism="PLAIN", sasl_kerberos_service_name="kafka")
    assert not caplog.messages  # defaults


@pytest.mark.parametrize("name", ["send", "send_and_wait", "send_batch", "send_offsets_to_transaction"])
def test_the_methods_take_aiokafkas_arguments(name: str) -> None:
    """In its order."""
    theirs = pytest.importorskip("aiokafka").AIOKafkaProducer
    of_both = [inspect.signature(getattr(kind, name)).parameters for kind in (theirs, AIOKafkaProducer)]
    assert list(of_both[0]) == list(of_both[1])


def test_its_errors_have_aiokafkas_names() -> None:
    """Those of the consumer's, which nothing raises here, are missing."""
    errors = pytest.importorskip("aiokafka.errors")
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception) and name != "ConsumerStoppedError":
            ours = getattr(splashdam.aiokafka, name)
            # 13, a name of Kafka 0.8, is kafka-python's StaleControllerEpochError.
            if kind.__dict__.get("errno") not in (None, 13):
                assert ours.errno == kind.errno, name


def test_a_batch_had_no_closed() -> None:
    """It has each method of aiokafka's."""
    theirs = pytest.importorskip("aiokafka.producer.message_accumulator").BatchBuilder
    for method in vars(theirs).keys() - vars(object).keys():
        assert method.startswith("_") or callable(getattr(splashdam.aiokafka.BatchBuilder, method)), method
    batch = AIOKafkaProducer().create_batch()
    assert not batch.closed()
    batch.close()
    assert batch.closed()


def test_a_time_as_a_float_was_refused(tcp_cluster: Any) -> None:
    """Programs give ``time.time() * 1000``, of which aiokafka cuts the fraction off."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            metadata = await producer.send_and_wait("one", b"v", timestamp_ms=5.7)
            assert metadata.timestamp == 5
            with pytest.raises(ValueError, match="NaN"):
                await producer.send("one", b"v", timestamp_ms=float("nan"))

    asyncio.run(main())


def test_sends_and_batches(tcp_cluster: Any) -> None:
    """With serializers, which are called once for each record, and a batch that is full."""
    calls: list[object] = []

    def serialize(value: Any) -> bytes:
        calls.append(value)
        return json.dumps(value).encode()

    async def main() -> None:
        options: dict[str, Any] = {"value_serializer": serialize, "max_batch_size": 300}
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            metadata = await producer.send_and_wait("two", {"n": 1}, b"k", 1, 5, [("h", b"v")])
            assert (metadata.partition, metadata.timestamp, metadata.serialized_header_size) == (1, 5, 2)
            future = await producer.send("two", {"n": 2}, partition=1)
            assert (await future).offset == 1
            batch = producer.create_batch()
            while (appended := batch.append(key=b"k", value="x" * 20, timestamp=7)) is not None:
                assert appended.offset == batch.record_count() - 1
                assert appended.timestamp == 7
            assert 1 < batch.record_count() < 10
            assert 0 < batch.size() <= 300
            assert batch.append(key=None, value="x", timestamp=None) is None  # it is closed
            first = await (await producer.send_batch(batch, "two", partition=1))
            assert first is not None
            assert first.offset == 2
            large = producer.create_batch()
            assert large.append(key=None, value="x" * 400, timestamp=None) is not None
            assert large.append(key=None, value="x" * 400, timestamp=None) is None
            assert await (await producer.send_batch(producer.create_batch(), "two", partition=0)) is None
            nothing = AIOKafkaProducer().create_batch()
            with pytest.raises(ValueError, match="at least one"):
                nothing.append(key=None, value=None, timestamp=None)
        assert len(calls) == 2 + batch.record_count() + 1 + 2
        for send in (producer.send("two", 1), producer.send_batch(batch, "two", partition=0)):
            with pytest.raises(ProducerClosed):
                await send

    asyncio.run(main())
    assert tcp_cluster.values("two", 1)[:3] == [b'{"n": 1}', b'{"n": 2}', b'"%s"' % (b"x" * 20)]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [("x", TypeError), (1.5, TypeError), (True, TypeError), (-5, ValueError), (2**70, OverflowError)],
)
def test_a_wrong_timestamp_was_told_when_the_batch_was_sent(wrong: Any, kind: type[Exception]) -> None:
    """``append`` took it, and the whole batch could not be sent."""
    batch = AIOKafkaProducer().create_batch()
    batch.append(timestamp=1, key=None, value=b"first")
    size_bytes = batch.size()
    with pytest.raises(kind, match=r"^timestamp[ =]"):
        batch.append(timestamp=wrong, key=None, value=b"v")
    assert (batch.record_count(), batch.size()) == (1, size_bytes)
    appended = batch.append(timestamp=2, key=None, value=b"second")
    assert appended is not None
    assert (appended.offset, appended.timestamp) == (1, 2)


def test_a_batch_ignored_max_request_size() -> None:
    """It took records that ``send_batch`` then refused, and more than fits into a request."""
    batch = AIOKafkaProducer(max_request_size=1_000).create_batch()
    with pytest.raises(MessageSizeTooLargeError, match="up to 1086 bytes, max_request_size is 1000"):
        batch.append(timestamp=None, key=None, value=bytes(1_000))
    while batch.append(timestamp=None, key=None, value=bytes(100)) is not None:
        assert batch.size() <= 1_000
    assert batch.record_count() == 7


@pytest.mark.parametrize("wrong", [None, [b"v"], b"v"])
def test_what_is_no_batch_was_an_attribute_error(wrong: Any) -> None:
    """The message names what makes batches."""

    async def main() -> None:
        with pytest.raises(TypeError, match=r"batch must be what create_batch\(\) made, not "):
            await AIOKafkaProducer().send_batch(wrong, "two", partition=0)

    asyncio.run(main())


def test_a_batch_that_was_sent_twice_doubled_its_records(tcp_cluster: Any) -> None:
    """aiokafka does so without idempotence, and with it its sender fails. After an error it may be sent."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            batch = producer.create_batch()
            batch.append(timestamp=None, key=None, value=b"v")
            with pytest.raises(ValueError, match="has no partition 99"):
                await producer.send_batch(batch, "two", partition=99)
            sent = await producer.send_batch(batch, "two", partition=1)
            for _ in "on its way", "delivered":
                with pytest.raises(IllegalOperation, match="was sent before"):
                    await producer.send_batch(batch, "two", partition=0)
                await sent

    asyncio.run(main())
    assert [tcp_cluster.values("two", number) for number in (0, 1)] == [[], [b"v"]]


def test_a_batch_whose_delivery_failed_may_be_sent_again(tcp_cluster: Any) -> None:
    """As a record."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=60_000) as producer:
            batch = producer.create_batch()
            batch.append(timestamp=None, key=None, value=b"v")
            lost = await producer.send_batch(batch, "one", partition=0)
            assert producer.purge() == 1
            with pytest.raises(splashdam.aiokafka.PurgedError):
                await lost
            await producer.send_batch(batch, "one", partition=0)

    asyncio.run(main())
    assert tcp_cluster.values("one") == [b"v"]


VALUES = [b"%d" % number + bytes(300) for number in range(10)]


def filled(producer: AIOKafkaProducer) -> Any:
    """A batch of ``VALUES``."""
    batch = producer.create_batch()
    for value in VALUES:
        assert batch.append(timestamp=None, key=None, value=value) is not None
    return batch


@pytest.mark.parametrize("end", ["it fails", "it is cancelled"])
def test_a_batch_that_was_queued_in_part_was_doubled_by_the_retry(tcp_cluster: Any, end: str) -> None:
    """Its first records fit into the open batch of the partition, the others wait for memory."""
    scripted = tcp_cluster.scripted
    scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )

    async def main() -> None:
        options: dict[str, Any] = {"max_batch_size": 4_000, "buffer_memory": 4_500, "linger_ms": 1_000}
        options |= {"request_timeout_ms": 1_000, "max_block_ms": 50 if end == "it fails" else 60_000}
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            await producer.prepare("one")
            await producer.send("one", bytes(2_000), partition=0)
            batch = filled(producer)
            sending = asyncio.create_task(producer.send_batch(batch, "one", partition=0))
            if end == "it is cancelled":
                while not producer.inspect().waiting_callers:  # noqa: ASYNC110 (the producer has no event)
                    await asyncio.sleep(0)
                sending.cancel()
            kind = KafkaTimeoutError if end == "it fails" else asyncio.CancelledError
            with pytest.raises(kind):
                await sending
            scripted.trouble_for = lambda _message: Trouble()
            with pytest.raises(IllegalOperation, match="or a part of it, was sent before"):
                await producer.send_batch(batch, "one", partition=0)

    asyncio.run(main())
    sent = tcp_cluster.values("one")[1:]
    assert 0 < len(sent) < len(VALUES)
    assert sent == VALUES[: len(sent)]


def test_a_batch_that_was_delivered_in_part_was_doubled_by_the_retry(tcp_cluster: Any) -> None:
    """The broker has taken one of the two batches that its records were in."""
    tcp_cluster.scripted.produce_script += [Trouble(), Trouble(code=ErrorCode.INVALID_RECORD)]

    async def main() -> None:
        options: dict[str, Any] = {"max_batch_size": 4_000, "linger_ms": 100}
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address, **options) as producer:
            await producer.prepare("one")
            await producer.send("one", bytes(2_000), partition=0)
            batch = filled(producer)
            sent = await producer.send_batch(batch, "one", partition=0)
            with pytest.raises(InvalidRecordError):
                await sent
            with pytest.raises(IllegalOperation, match="was sent before"):
                await producer.send_batch(batch, "one", partition=0)

    asyncio.run(main())
    sent = tcp_cluster.values("one")[1:]
    assert 0 < len(sent) < len(VALUES)
    assert sent == VALUES[: len(sent)]


def test_a_batch_whose_future_was_cancelled_may_not_be_sent_again(tcp_cluster: Any) -> None:
    """Its records are on their way all the same."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            batch = filled(producer)
            sent = await producer.send_batch(batch, "one", partition=0)
            sent.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sent
            with pytest.raises(IllegalOperation, match="was sent before"):
                await producer.send_batch(batch, "one", partition=0)

    asyncio.run(main())
    assert tcp_cluster.values("one") == VALUES


def test_an_empty_batch_went_to_a_partition_that_is_not_there(tcp_cluster: Any) -> None:
    """Topic and partition are looked up, as in aiokafka."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
            wrong: list[tuple[Any, Any, type[Exception]]] = [
                ("two", 99, ValueError),
                ("two", -1, ValueError),
                ("two", "0", TypeError),
                ("a b", 0, ValueError),
                (b"two", 0, TypeError),
            ]
            batch = producer.create_batch()
            for topic, partition, kind in wrong:
                with pytest.raises(kind):
                    await producer.send_batch(batch, topic, partition=partition)
            assert await (await producer.send_batch(batch, "two", partition=1)) is None

    asyncio.run(main())


def test_transactions_need_no_other_call_than_start(tmp_path: Path) -> None:
    """``start`` fences earlier producers, who see it as ``ProducerFenced``."""

    async def main() -> None:
        options: dict[str, Any] = {"bootstrap_servers": f"embedded:{tmp_path}", "transactional_id": "t"}
        async with AIOKafkaProducer(**options) as producer:
            with pytest.raises(IllegalOperation):
                await producer.send("t", b"outside")
            with pytest.raises(IllegalOperation):
                await producer.send_offsets_to_transaction({}, "group")
            async with producer.transaction():
                with pytest.raises(ValueError, match="names no group"):
                    await producer.send_offsets_to_transaction({}, None)
                await producer.send_and_wait("t", b"v")
                await producer.send_offsets_to_transaction({("t", 0): (3, "text")}, "group")
            async with AIOKafkaProducer(**options):
                with pytest.raises(ProducerFenced):
                    async with producer.transaction():
                        await producer.send_and_wait("t", b"v")

    asyncio.run(main())


def test_a_fenced_block_that_awaits_no_record_raises_producer_fenced(tmp_path: Path) -> None:
    """Its commit only says that the transaction can be aborted; the abort says why."""

    async def main() -> None:
        options: dict[str, Any] = {"bootstrap_servers": f"embedded:{tmp_path}", "transactional_id": "t"}
        async with AIOKafkaProducer(**options) as producer, AIOKafkaProducer(**options):
            with pytest.raises(ProducerFenced):
                async with producer.transaction():
                    await producer.send("t", b"v")

    asyncio.run(main())


@pytest.mark.parametrize("call", ["send", "send_and_wait", "send_batch", "commit", "abort", "offsets"])
def test_a_fenced_producers_record_raised_what_except_producer_fenced_does_not_catch(
    tmp_path: Path, call: str
) -> None:
    """It was ``InvalidProducerEpochError``, and ``TransactionFailedError`` from the calls after it."""

    async def batch_of(producer: AIOKafkaProducer) -> Any:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"v")
        return await (await producer.send_batch(batch, "t", partition=0))

    async def future_of(producer: AIOKafkaProducer) -> Any:
        return await (await producer.send("t", b"v"))

    calls: dict[str, Any] = {
        "send": future_of,
        "send_and_wait": lambda producer: producer.send_and_wait("t", b"v"),
        "send_batch": batch_of,
        "commit": lambda producer: producer.commit_transaction(),
        "abort": lambda producer: producer.abort_transaction(),
        "offsets": lambda producer: producer.send_offsets_to_transaction({("t", 0): (3, "")}, "group"),
    }

    async def main() -> None:
        options: dict[str, Any] = {"bootstrap_servers": f"embedded:{tmp_path}", "transactional_id": "t"}
        async with AIOKafkaProducer(**options) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"v")
            async with AIOKafkaProducer(**options):
                for name in (call, *calls, "abort"):
                    with pytest.raises(ProducerFenced):
                        await calls[name](producer)
                with pytest.raises(ProducerFenced):
                    await producer.begin_transaction()

    asyncio.run(main())


def test_start_waits_for_a_broker(closed_port: str) -> None:
    """And raises where there is none, as aiokafka's does."""

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=closed_port, request_timeout_ms=1)
        with pytest.raises(splashdam.aiokafka.NoBrokersAvailable):
            await producer.start()

    asyncio.run(main())
    assert issubclass(splashdam.aiokafka.KafkaTimeoutError, KafkaTimeoutError)


@pytest.mark.parametrize("call", ["send", "send_and_wait", "send_batch", "partitions_for"])
def test_a_send_before_start_was_not_told_of_start(closed_port: str, call: str) -> None:
    """It named ``async with`` alone, and after a ``start`` that failed it called the producer closed."""
    calls: dict[str, Any] = {
        "send": lambda producer: producer.send("t", b"v"),
        "send_and_wait": lambda producer: producer.send_and_wait("t", b"v"),
        "send_batch": lambda producer: producer.send_batch(producer.create_batch(), "t", partition=0),
        "partitions_for": lambda producer: producer.partitions_for("t"),
    }

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=closed_port, request_timeout_ms=1)
        with pytest.raises(ProducerClosed, match=r"not running; await start\(\) first, or use `async with`"):
            await calls[call](producer)
        with pytest.raises(splashdam.aiokafka.NoBrokersAvailable):
            await producer.start()
        with pytest.raises(ProducerClosed, match=r"not running; await start\(\) first"):
            await calls[call](producer)
        await producer.stop()
        with pytest.raises(ProducerClosed, match="is closed"):
            await calls[call](producer)

    asyncio.run(main())


def test_a_missing_topic_was_a_timeout_alone() -> None:
    """aiokafka raises what the cluster has said of it."""

    async def main(address: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=500) as producer:
            batch = producer.create_batch()
            for _ in "empty", "of one record":
                failures = await asyncio.gather(
                    producer.send("missing", b"v"),
                    producer.send_and_wait("missing", b"v"),
                    producer.send_batch(batch, "missing", partition=0),
                    producer.partitions_for("missing"),
                    return_exceptions=True,
                )
                assert {type(each) for each in failures} == {splashdam.aiokafka.UnknownTopicOrPartitionError}
                batch = producer.create_batch()
                batch.append(timestamp=None, key=None, value=b"v")

    with EmbeddedBroker(auto_create_topics_enable=False) as broker:
        asyncio.run(main(broker.bootstrap_servers))


def test_a_refused_transactional_id_was_another_error() -> None:
    """``start`` raises what the cluster has said, as in aiokafka."""

    async def main(address: str) -> None:
        options: dict[str, Any] = {"transactional_id": "t", "transaction_timeout_ms": 2**31 - 1}
        with pytest.raises(splashdam.aiokafka.InvalidTransactionTimeout):
            await AIOKafkaProducer(bootstrap_servers=address, **options).start()

    with EmbeddedBroker() as broker:
        asyncio.run(main(broker.bootstrap_servers))


def test_except_kafka_connection_error_missed_that_there_is_no_broker(closed_port: str) -> None:
    """So programs could not wait for one: their next ``start`` was refused, since the producer was closed."""

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=closed_port, request_timeout_ms=1)
        name = producer.config["client_id"]
        for _ in range(3):
            with pytest.raises(splashdam.aiokafka.KafkaConnectionError):
                await producer.start()
        assert producer.config["client_id"] == name
        await producer.stop()

    asyncio.run(main())


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_start_that_failed_could_not_be_repeated(tcp_cluster: Any, transactional_id: str | None) -> None:
    """Now it works as soon as there is a broker; a started or stopped one is refused as before."""
    scripted = tcp_cluster.scripted
    scripted.trouble_for = lambda _message: Trouble(then="hang_up")

    async def main() -> None:
        options: dict[str, Any] = {"transactional_id": transactional_id, "linger_ms": 60_000}
        producer = AIOKafkaProducer(bootstrap_servers=tcp_cluster.address, request_timeout_ms=300, **options)
        with pytest.raises(splashdam.aiokafka.KafkaConnectionError):
            await producer.start()
        scripted.trouble_for = lambda _message: Trouble()
        await producer.start()
        with pytest.raises(IllegalOperation, match="a producer starts once"):
            await producer.start()
        if transactional_id is None:
            await producer.send("one", b"v")
        await producer.stop()
        with pytest.raises(IllegalOperation, match="a producer starts once"):
            await producer.start()

    asyncio.run(main())


def test_a_start_that_failed_closed_the_serializers_of_the_next_one(closed_port: str) -> None:
    """They are closed once, when the program gives up."""

    class Registry:
        closed = 0

        def __call__(self, value: Any) -> bytes:
            return bytes(value)

        def close(self) -> None:
            self.closed += 1

    registry = Registry()

    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=closed_port, request_timeout_ms=1, value_serializer=registry
        )
        for _ in range(2):
            with pytest.raises(splashdam.aiokafka.KafkaConnectionError):
                await producer.start()
            assert registry.closed == 0
        for _ in range(2):
            await producer.stop()
            assert registry.closed == 1

    asyncio.run(main())


def test_a_token_comes_from_the_applications_loop() -> None:
    """The provider uses what that loop has; the producer's own loop is another one."""

    class Provider:
        async def token(self) -> str:
            assert asyncio.get_running_loop() is loops[0]
            return "token"

        def extensions(self) -> dict[str, str]:
            return {"a": "b"}

    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        tokens = TokensFromTheLoop(Provider())
        tokens.loop = loops[0]
        assert await asyncio.to_thread(trio.run, tokens.token) == "token"
        assert tokens.extensions() == {"a": "b"}  # type: ignore[attr-defined]  # `__init__` sets it if the provider has it

    asyncio.run(main())
    producer = AIOKafkaProducer(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider()
    )
    assert isinstance(producer._core.settings.sasl_oauth_token_provider, TokensFromTheLoop)
    assert isinstance(producer.config["sasl_oauth_token_provider"], Provider)


def test_a_token_provider_of_a_closed_loop_is_not_called() -> None:
    """Its coroutine was made, and never awaited: a warning, which is an error here."""

    async def token() -> str:
        raise AssertionError("called")

    tokens = TokensFromTheLoop(token)
    tokens.loop = asyncio.new_event_loop()
    tokens.loop.close()
    with pytest.raises(SaslError, match=r"loop .* is closed"):
        trio.run(tokens.token)
    gc.collect()


def test_a_token_provider_of_a_stopped_loop_holds_no_thread() -> None:
    """The worker thread that waited for it stayed until the exit, one more for each connection attempt."""

    async def token() -> str:
        raise AssertionError("called")

    async def main() -> None:
        credentials = Credentials("", token_provider=tokens)
        with trio.move_on_after(1) as patience:
            await open_client("", credentials)
        assert patience.cancelled_caught
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0

    loop = asyncio.new_event_loop()
    tokens = TokensFromTheLoop(token)
    tokens.loop = loop
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    loop.run_until_complete(asyncio.sleep(0))  # what was given up is not begun now
    loop.close()


def test_a_token_task_that_ends_by_cancellation_is_an_error_of_the_connection() -> None:
    """asyncio's CancelledError is a BaseException, which would end the producer's loop."""

    async def token() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "token"

    async def main() -> None:
        tokens = TokensFromTheLoop(token)
        tokens.loop = asyncio.get_running_loop()
        with pytest.raises(SaslError, match="cancelled"):
            await asyncio.to_thread(trio.run, tokens.token)

    asyncio.run(main())


def test_a_provider_of_ours_runs_in_the_producers_loop() -> None:
    """It is a coroutine function, too, but one of trio: under asyncio every login failed."""
    provider = OidcTokenProvider("https://idp.example.com/token", "id", "secret")
    for each in (provider, provider.token):
        producer = AIOKafkaProducer(
            security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=each
        )
        assert producer._core.settings.sasl_oauth_token_provider == each


def test_extensions_come_from_the_applications_loop_too() -> None:
    """A coroutine function of asyncio was awaited in the producer's loop."""

    class Provider:
        async def token(self) -> str:
            return "token"

        async def extensions(self) -> dict[str, str]:
            await asyncio.sleep(0)
            return {"a": "b"}

    async def main() -> None:
        tokens = TokensFromTheLoop(Provider())
        tokens.loop = asyncio.get_running_loop()
        extensions = tokens.extensions  # type: ignore[attr-defined]  # `__init__` sets it if the provider has it
        assert await asyncio.to_thread(trio.run, extensions) == {"a": "b"}

    asyncio.run(main())
