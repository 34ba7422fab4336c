"""``send_many`` and ``send_arrow``: the methods of both producers.

What they need is imported at the first call: not every program has many records at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splashdam.client.bulk.reports import BulkDelivery
    from splashdam.client.future import RecordFuture
    from splashdam.client.running.core import ProducerCore
    from splashdam.client.sending.admission import Admission


class ManySends:
    """What the blocking producer has."""

    __slots__ = ()

    _core: ProducerCore

    def _settle(self, admission: Admission) -> RecordFuture:
        """Waits for what the record needs, if that is possible here, and brings it in."""
        raise NotImplementedError

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Any = None,
        partition: int | Iterable[int | None] | None = None,
        timestamp_ms: int | Iterable[int | None] | None = None,
    ) -> BulkDelivery:
        """Puts many records into batches, in order: as ``send`` for each, at a small part of its cost.

        It waits as ``send`` does, for a topic's first metadata and for memory, up to ``max_block_ms`` each
        time. Records without a key follow the partitioner of the producer: by default they fill a batch of
        one partition and go on with another one. Records of one call keep their order in each partition.
        Serializers and an own partitioner are asked for every record, which costs as much as ``send``.

        Args:
            topic: name of the topic.
            values: bytes, None for tombstones, or what ``value_serializer`` takes. A list or tuple is read
                as it is and must not be changed meanwhile, anything else is made a list first.
            keys: as many as values; None for none at all. A null key is None in its place.
            headers: of every record, as for ``send``; or a list with the headers of each, None for none.
            partition: where all of them go, or a number for each; default and None: by key, or the
                partitioner decides.
            timestamp_ms: of all of them, or one for each; default: now, read again for each batch. None
                among others is the time of the call.

        Returns:
            the delivery of all of them, to be waited for with ``get()`` or ``await``; if the cluster refuses
            the topic, it has failed already.

        Raises:
            BulkSendError: it ended before the last record, for the reason that ``send`` would have given
                (its ``__cause__``). What is before its ``index`` is queued, the rest is not.
            IllegalStateError: the producer is closed, or this is a forked child. Nothing is queued.
            TypeError, ValueError: an argument is not what it must be. Nothing is queued.
        """
        from splashdam.client.bulk.sending import bulk_of, drive_bulk_in_thread

        bulk = bulk_of(self._core.intake, topic, values, keys, headers, partition, timestamp_ms)
        drive_bulk_in_thread(bulk, self._settle)
        return bulk.finish()

    def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str = "value",
        key: str | None = "key",
        headers: Any = None,
        partition: int | str | None = None,
        timestamp_ms: int | str | None = None,
        may_be_empty: bool = False,
    ) -> BulkDelivery:
        """Sends the rows of Arrow data, straight from their buffers; see ``send_many``.

        Data are whatever has ``__arrow_c_stream__`` or ``__arrow_c_array__``: tables and record batches of
        pyarrow, polars, DuckDB and others, chunk by chunk, or a single array of values. pyarrow is not
        needed. Columns are binary or text, also large, view and fixed-size, or dictionaries of these.

        Args:
            topic: name of the topic.
            data: a table, a record batch, a stream of them, or an array of values.
            value: name of the column of values; nulls in it are tombstones and need a key.
            key: name of the column of keys. ``"key"`` need not be there, another name must; None for no keys.
            headers: of every record, as for ``send``; or the name of a column of lists of structs of a key
                and a value, or of maps. A null is a record without headers.
            partition: where all of them go; or the name of a column of whole numbers, whose nulls go by key,
                or where the partitioner decides.
            timestamp_ms: of all of them; or the name of a column of timestamps, or of milliseconds as whole
                numbers. Finer ones lose what is below a millisecond, nulls are the time of the call.
            may_be_empty: whether a row with neither value nor key is a record, as in Kafka, or an error.

        Raises:
            BulkSendError, IllegalStateError, TypeError, ValueError: as ``send_many``; for damaged data and
                columns that are not bytes too.
            KafkaConfigurationError: the producer has a serializer.
        """
        from splashdam.client.bulk.arrow import ArrowBulk
        from splashdam.client.bulk.sending import drive_bulk_in_thread

        parts = (value, key, headers, partition, timestamp_ms)
        with ArrowBulk(self._core.intake, topic, data, *parts, may_be_empty=may_be_empty) as arrow:
            bulk = arrow.bulk
            for columns in arrow.chunks():
                bulk.add(*columns)
                drive_bulk_in_thread(bulk, self._settle)
        return bulk.finish()


class AsyncManySends:
    """What the trio producer has."""

    __slots__ = ()

    _core: ProducerCore

    async def _settle(self, admission: Admission) -> RecordFuture:
        """Waits for what the record needs and brings it in."""
        raise NotImplementedError

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Any = None,
        partition: int | Iterable[int | None] | None = None,
        timestamp_ms: int | Iterable[int | None] | None = None,
    ) -> BulkDelivery:
        """Puts many records into batches, in order: as ``send`` for each, at a small part of its cost.

        It is a checkpoint when it waits, and once per batch. While it waits it can be cancelled; what is
        queued then stays queued.

        Arguments, result and errors are those of ``KafkaProducer.send_many``.
        """
        from splashdam.client.bulk.sending import bulk_of, drive_bulk_in_trio

        bulk = bulk_of(self._core.intake, topic, values, keys, headers, partition, timestamp_ms)
        await drive_bulk_in_trio(bulk, self._settle)
        return bulk.finish()

    async def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str = "value",
        key: str | None = "key",
        headers: Any = None,
        partition: int | str | None = None,
        timestamp_ms: int | str | None = None,
        may_be_empty: bool = False,
    ) -> BulkDelivery:
        """Sends the rows of Arrow data, straight from their buffers; see ``send_many``.

        The chunks of a stream are asked for in the loop: one that computes them should be read before.

        Arguments, result and errors are those of ``KafkaProducer.send_arrow``.
        """
        from splashdam.client.bulk.arrow import ArrowBulk
        from splashdam.client.bulk.sending import drive_bulk_in_trio

        parts = (value, key, headers, partition, timestamp_ms)
        with ArrowBulk(self._core.intake, topic, data, *parts, may_be_empty=may_be_empty) as arrow:
            bulk = arrow.bulk
            for columns in arrow.chunks():
                bulk.add(*columns)
                await drive_bulk_in_trio(bulk, self._settle)
        return bulk.finish()
