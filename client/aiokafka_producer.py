"""``AIOKafkaProducer``: the asyncio producer with aiokafka's options, arguments and batches."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import attrs

from splashdam.client.asyncio_futures import DeliveryFuture
from splashdam.client.asyncio_producer import AsyncioKafkaProducer
from splashdam.client.reports import BulkDelivery
from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.sending.arguments import (
    check_timestamp_ms,
    header_pairs,
    plain_bytes,
    sendable_headers,
)
from splashdam.client.sending.lookup import TopicLookup
from splashdam.client.serializers import (
    SerializeFunction,
    Serializer,
    SerializerHeaders,
    serialize_function,
)
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.security_settings import (
    PROTOCOLS,
    has_no_effect,
    is_default,
    protocol_named,
)
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.errors import (
    BulkSendError,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionFailedError,
)
from splashdam.model.log_text import fields
from splashdam.model.options import MAX_INT, MAX_LONG, plain_number
from splashdam.model.values import Buffer, HeaderPairs, RecordMetadata
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import record_size_upper_bound
from splashdam.record.kernel.outcomes.outcome import fresh

logger = logging.getLogger("splashdam.client")


class AIOKafkaProducer(AsyncioKafkaProducer[Any, Any]):
    """A drop-in for ``aiokafka.AIOKafkaProducer``, of which it has the constructor, methods and arguments.

    Where it differs: records are acknowledged by all replicas and idempotent, unless ``acks`` or
    ``enable_idempotence`` say otherwise; memory is limited, by ``buffer_memory``; several batches are on the
    way to a broker at once. ``docs/how-to/migration.md`` has the list.

    Args:
        loop: has no effect; aiokafka deprecates it, too.
        api_version: has no effect; aiokafka deprecates it, too.
        acks: 0, 1, "all" or -1. Default: "all"; aiokafka's is 1.
        enable_idempotence: default: True with ``acks="all"``.
        max_batch_size: bytes of a batch. Default: that of ``batch_size``; aiokafka's is 16384.
        request_timeout_ms: a request that has no answer is sent again after it; a record fails after twice
            that time, and ``start`` and a send without metadata wait so long. Default: 40000.
        connections_max_idle_ms: None: idle connections stay open.
        sasl_mechanism: default: "PLAIN".
        sasl_oauth_token_provider: its ``token()`` may be a coroutine function, which runs in the event loop
            of ``start``. What ``security_protocol`` does not use of the options for TLS and SASL is logged
            as a warning, and ignored.
        options: the others have aiokafka's names and defaults, and each further option of ``KafkaProducer``
            may be given.

    Raises:
        KafkaConfigurationError: an option is illegal or unknown. A ValueError.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        api_version: str | None = None,
        acks: int | str = "all",
        max_batch_size: int | None = None,
        linger_ms: float = 0,
        request_timeout_ms: float = 40_000,
        connections_max_idle_ms: float | None = 540_000,
        enable_idempotence: bool | None = None,
        security_protocol: str = "PLAINTEXT",
        sasl_mechanism: str | None = "PLAIN",
        **options: Any,
    ) -> None:
        for name, given in {"loop": loop, "api_version": api_version}.items():
            if given is not None:
                warnings.warn(f"{name} has no effect", DeprecationWarning, stacklevel=2)
        options["security_protocol"] = protocol = protocol_named(security_protocol)
        if sasl_mechanism != "PLAIN" or protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            options["sasl_mechanism"] = sasl_mechanism
        ignored = _take_unused_security(options, protocol)
        if connections_max_idle_ms is None:
            connections_max_idle_ms = MAX_LONG
        # Checked here, because other options are computed from them, and their errors would name those.
        linger_ms = _checked("linger_ms", linger_ms)
        request_timeout_ms = _checked("request_timeout_ms", request_timeout_ms)
        options["acks"] = acks = _checked("acks", acks)
        if enable_idempotence is None and acks in (0, 1) and options.get("transactional_id") is None:
            # Said here, so that nobody is warned that idempotence is off: who gives ``acks=1`` asks for that.
            enable_idempotence = False
        if enable_idempotence is not None:
            options["enable_idempotence"] = enable_idempotence or options.get("transactional_id") is not None
        if max_batch_size is not None:
            options["batch_size"] = _checked("batch_size", max_batch_size, given_as="max_batch_size")
        for name in ("key_serializer", "value_serializer"):
            if options.get(name) is not None:
                options[name] = _unless_serialized(options[name], name)
        self._options: dict[str, Any] = {
            "bootstrap_servers": bootstrap_servers,
            "bootstrap_timeout_ms": request_timeout_ms,
            "connections_max_idle_ms": connections_max_idle_ms,
            "linger_ms": linger_ms,
            "max_block_ms": request_timeout_ms,
            "request_timeout_ms": request_timeout_ms,
            "delivery_timeout_ms": min(2 * request_timeout_ms + linger_ms, MAX_INT),
            **options,
        }
        self._may_start_again = False
        super().__init__(**self._options)
        if ignored:
            client_id = self._settings.client_id
            text = "%s: %s: ignored with security_protocol=%r"
            logger.warning(text, client_id, ", ".join(ignored), protocol, extra=fields(client_id=client_id))

    async def start(self) -> None:
        """Connect to the cluster, and with a ``transactional_id`` initialise transactions.

        After an error it may be called again.

        Raises:
            NoBrokersAvailable: no broker has answered within ``request_timeout_ms``. A KafkaConnectionError.
            AuthenticationError: a broker refuses the login, or its listener has another protocol.
            IllegalStateError: it was started or stopped before.
            KafkaError: the cluster refuses the ``transactional_id``.
        """
        if self._may_start_again:
            # It has ended with the attempt, and a producer starts once.
            super().__init__(**{**self._options, "client_id": self._settings.client_id})
            self._may_start_again = False
        self._core.refuse_unless_new()
        self._core.keeps_plugins = True  # after an error, the next attempt has the same serializers
        try:
            await super().start()
            if self._settings.transactional_id is not None:
                await self.init_transactions()
        except BaseException as error:
            await super().stop(0)
            self._may_start_again = True
            _raise_as_in_aiokafka(error)
            raise
        self._core.keeps_plugins = False

    async def stop(self, timeout: float | None = None) -> None:
        """See ``AsyncioKafkaProducer.stop``."""
        if self._may_start_again and self._core.keeps_plugins:  # for another attempt, which does not come
            self._core.keeps_plugins = False
            self._core.intake.close_plugins()
        await super().stop(timeout)

    async def send(  # type: ignore[override]  # noqa: PLR0917 (aiokafka's order of arguments)
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Any = None,
    ) -> DeliveryFuture:
        """See ``AsyncioKafkaProducer.send``; the order of the arguments is aiokafka's.

        Args:
            topic, value, key, partition, headers: as there.
            timestamp_ms: likewise; a fraction is cut off, as for ``time.time() * 1000``.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, for ``request_timeout_ms``.
            ProducerFenced: a newer producer with this ``transactional_id`` has taken over, or the transaction
                took longer than ``transaction_timeout_ms``. The future may raise it, too.
        """
        if isinstance(timestamp_ms, float):
            timestamp_ms = int(timestamp_ms)
        try:  # not `_errors_as_in_aiokafka`: records come this way, and each would pay for it
            return await super().send(topic, value, key, headers, partition, timestamp_ms)
        except KafkaError as error:
            _raise_as_in_aiokafka(error)
            raise

    async def send_and_wait(  # type: ignore[override]  # noqa: PLR0917 (aiokafka's order of arguments)
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Any = None,
    ) -> RecordMetadata:
        """See ``AsyncioKafkaProducer.send_and_wait``; the order of the arguments is aiokafka's."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def partitions_for(self, topic: str) -> set[int]:
        """See ``AsyncioKafkaProducer.partitions_for``.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, for ``request_timeout_ms``.
        """
        with _errors_as_in_aiokafka():
            return await super().partitions_for(topic)

    def create_batch(self) -> BatchBuilder:
        """Make an empty batch, to fill and give to ``send_batch``.

        It is full at ``max_batch_size``, or at ``max_request_size`` where that is less.
        """
        settings, check_size = self._settings, self._core.intake.check_size
        limit_bytes = min(settings.batch_size, settings.max_request_size)
        return BatchBuilder(limit_bytes, check_size, settings.key_serializer, settings.value_serializer)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int
    ) -> asyncio.Future[RecordMetadata | None]:
        """Send the records of a batch, in order, to one partition. Waits for room, as ``send``.

        A batch is sent once. After an error it may be sent again, unless something of it was sent: records
        were queued before this call raised, or were delivered before the future did. After a cancellation of
        this call, or of its future, it may not.

        Returns:
            a future of the first record's metadata, when all are delivered; of None for an empty batch.

        Raises:
            TypeError: ``batch`` was not made by ``create_batch``.
            IllegalStateError: something of the batch was sent before; or the producer is closed.
            Exception: as ``send``.
        """
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"batch must be what create_batch() made, not {type(batch).__name__}")
        refuse = self._core.intake.refuse
        if refuse is not None:
            with _errors_as_in_aiokafka():
                raise refuse()
        if batch.is_sent:
            raise IllegalStateError(
                "this batch, or a part of it, was sent before; records would be in the topic twice."
                " Fill another one from create_batch()"
            )
        batch.close()
        batch.is_sent = True
        try:
            if not batch.records:
                await self._find(topic, partition)
            delivery = await self._send_rows(batch.records, topic, partition)
        except BulkSendError as error:
            batch.is_sent = error.index > 0
            _raise_as_in_aiokafka(error.__cause__)
            cause = error.__cause__ or error
            raise cause from cause.__cause__
        except Exception as refused:  # nothing is queued
            batch.is_sent = False
            _raise_as_in_aiokafka(refused)
            raise
        return asyncio.ensure_future(_first_of(batch, delivery))

    async def _find(self, topic: str, partition: int | None) -> None:
        """Look for topic and partition; raises as ``send``."""
        refuse_inside_a_send("send_batch()")
        core = self._core
        deadline_ms = core.clock.now_ms() + self._settings.max_block_ms
        lookup = TopicLookup(core.intake, topic, partition, deadline_ms)
        await self._drive(lookup, core.clock, core.intake.caller_counters)

    async def _send_rows(self, rows: list[_Row], topic: str, partition: int | None) -> BulkDelivery:
        return await self.send_many(
            topic,
            [row.value for row in rows],
            keys=[row.key for row in rows],
            headers=[row.headers for row in rows],
            partition=partition,
            timestamp_ms=[row.timestamp_ms for row in rows],
        )

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: Any) -> None:
        """See ``AsyncioKafkaProducer.send_offsets_to_transaction``.

        Args:
            offsets: the offset to read next, or it with a text, by ``TopicPartition``.
            group_id: name of the group; or a ``ConsumerGroupMetadata``, which fences replaced members.

        Raises:
            IllegalStateError: no transaction is open.
            ValueError: the group has no name.
        """
        if self._transactions().over:
            raise IllegalStateError("not in a transaction: call begin_transaction() first")
        if not group_id:
            raise ValueError(f"group_id names no group: {group_id!r}")
        with _errors_as_in_aiokafka():
            await super().send_offsets_to_transaction(offsets, group_id)

    async def begin_transaction(self) -> None:
        """See ``AsyncioKafkaProducer.begin_transaction``; raises ``ProducerFenced`` as ``send``."""
        with _errors_as_in_aiokafka():
            await super().begin_transaction()

    async def abort_transaction(self) -> None:
        """See ``AsyncioKafkaProducer.abort_transaction``; raises ``ProducerFenced`` as ``send``."""
        with _errors_as_in_aiokafka():
            await super().abort_transaction()

    async def commit_transaction(self) -> None:
        """See ``AsyncioKafkaProducer.commit_transaction``; raises ``ProducerFenced`` as ``send``."""
        with _errors_as_in_aiokafka():
            await super().commit_transaction()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """See ``AsyncioKafkaProducer.transaction``.

        Raises:
            ProducerFenced: as ``send``; also where a record was refused for that reason.
        """
        try:
            async with super().transaction():
                yield
        except (ProducerFenced, TransactionFailedError) as error:
            refusal = self._transactions().refusal()
            if isinstance(refusal, ProducerFencedError):
                raise refusal from error
            raise


_CAUSES_RAISED_INSTEAD: Mapping[type[KafkaError], type[KafkaError]] = {
    FatalTransactionError: BrokerResponseError,
    KafkaTimeoutError: UnknownTopicOrPartitionError,
    TransactionFailedError: ProducerFenced,
}
"""By class of an error, that of its cause which aiokafka raises in its place."""


def _raise_as_in_aiokafka(error: BaseException | None) -> None:
    """Raise the cause of an error, where aiokafka does so.

    Raises:
        KafkaError: the cause, one of ``_CAUSES_RAISED_INSTEAD``.
    """
    for kind, told in _CAUSES_RAISED_INSTEAD.items():
        if isinstance(error, kind) and isinstance(error.__cause__, told):
            raise fresh(error.__cause__) from None


@contextmanager
def _errors_as_in_aiokafka() -> Iterator[None]:
    """Raise what aiokafka raises in place of the errors of the block; see ``_raise_as_in_aiokafka``."""
    try:
        yield
    except KafkaError as error:
        _raise_as_in_aiokafka(error)
        raise


def _take_unused_security(options: dict[str, Any], protocol: str) -> list[str]:
    """Remove options for TLS and SASL that ``protocol`` does not use; return those with a value."""
    if protocol not in PROTOCOLS:  # the error is about that
        return []
    known = AIOKafkaProducer.DEFAULT_CONFIG
    unused = [name for name in options if name in known and has_no_effect(name, protocol)]
    return [name for name in unused if not is_default(name, options.pop(name))]


def _checked(option: str, value: Any, *, given_as: str = "") -> Any:
    """Check one option by its rule, and return it; the error has the name by which it was given.

    Raises:
        KafkaConfigurationError: the value is illegal.
    """
    value = plain_number(value)
    field = attrs.fields_dict(ProducerSettings)[option].evolve(name=given_as or option)
    assert field.validator is not None
    field.validator(None, field, value)
    return value


class _Serialized(bytes):
    """A key or value of a ``BatchBuilder``, which has called the serializer."""


def _unless_serialized(serializer: Any, option: str) -> Serializer:
    serialize = serialize_function(serializer, option)
    assert serialize is not None
    return _UnlessSerialized(serialize, getattr(serializer, "close", None))


class _UnlessSerialized(Serializer):
    def __init__(self, serialize: SerializeFunction, close: Callable[[], None] | None) -> None:
        self._serialize = serialize
        self._close = close

    def serialize(self, topic: str, headers: Any, data: Any) -> Buffer | None:
        return data if type(data) is _Serialized else self._serialize(topic, headers, data)

    def close(self) -> None:
        if self._close is not None:
            self._close()


class BatchRecordMetadata(NamedTuple):
    """What ``BatchBuilder.append`` returns.

    Attributes:
        offset: number of the record in the batch.
        crc: None; records of this format have none of their own.
        size: an upper bound of its bytes in the batch.
        timestamp: milliseconds since the epoch; None for the time at which the batch is sent.
    """

    offset: int
    crc: None
    size: int
    timestamp: int | None


class _Row(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: HeaderPairs | None
    timestamp_ms: int | None


class BatchBuilder:
    """Records for one partition, made by ``create_batch`` and sent by ``send_batch``.

    Args:
        limit_bytes: what the batch may have, beside its first record.
        check_size: raises for a record (key, value, headers) that no request has room for.
        key_serializer, value_serializer: as for the producer.

    Attributes:
        records: in the order of their offsets.
        is_sent: whether ``send_batch`` refuses it, since some of its records were sent, or may have been.
    """

    def __init__(
        self,
        limit_bytes: int,
        check_size: Callable[[bytes | None, bytes | None, HeaderPairs | None], None],
        key_serializer: Any,
        value_serializer: Any,
    ) -> None:
        self.records: list[_Row] = []
        self.is_sent = False
        self._limit_bytes = limit_bytes
        self._check_size = check_size
        self._size_bytes = HEADER_BYTES
        self._closed = False
        self._serialize_key = serialize_function(key_serializer, "key_serializer")
        self._serialize_value = serialize_function(value_serializer, "value_serializer")

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Any = ()
    ) -> BatchRecordMetadata | None:
        """Append a record; return None, and close the batch, if it is full, or if it is closed already.

        Args:
            timestamp: milliseconds since the epoch; None for the time at which the batch is sent.
            key, value, headers: as for ``send``. A serializer gets an empty name of a topic.

        Raises:
            TypeError, ValueError, OverflowError: an argument is invalid. The batch is as it was.
            MessageSizeTooLargeError: the record may exceed ``max_request_size``. Likewise.
            Exception: raised by a serializer.
        """
        if self._closed:
            return None
        if timestamp is not None:
            timestamp = check_timestamp_ms(timestamp, "timestamp")
        pairs = header_pairs(headers)
        serialized_key = _serialized(self._serialize_key, pairs, key, "key")
        serialized_value = _serialized(self._serialize_value, pairs, value, "value")
        if serialized_key is None and serialized_value is None:
            raise ValueError("Need at least one: key or value")
        sendable = sendable_headers(pairs) or None
        self._check_size(serialized_key, serialized_value, sendable)
        size_bytes = record_size_upper_bound(serialized_key, serialized_value, sendable)
        if self.records and self._size_bytes + size_bytes > self._limit_bytes:
            self.close()
            return None
        self._size_bytes += size_bytes
        self.records.append(_Row(serialized_value, serialized_key, sendable, timestamp))
        return BatchRecordMetadata(len(self.records) - 1, None, size_bytes, timestamp)

    def close(self) -> None:
        """Take no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether it takes no more records: it is full, or was closed or sent."""
        return self._closed

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def size(self) -> int:
        """Return an upper bound of the bytes of the batch, before compression."""
        return self._size_bytes


def _serialized(
    serialize: SerializeFunction | None, headers: SerializerHeaders, data: Any, what: str
) -> bytes | None:
    if serialize is not None:
        data = serialize("", headers, data)
    plain = plain_bytes(data, what)
    return plain if plain is None or serialize is None else _Serialized(plain)


async def _first_of(batch: BatchBuilder, delivery: BulkDelivery) -> RecordMetadata | None:
    try:
        await delivery
    except Exception:
        batch.is_sent = delivery.report().delivered > 0
        raise
    return delivery[0].value if len(delivery) else None
