"""``send_arrow``: sends the chunks of Arrow data through a ``BulkSend``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from splashdam.client.bulk.sending import BulkSend, RowParts, row_parts
from splashdam.client.sending.intake import RecordIntake
from splashdam.model.errors import KafkaConfigurationError
from splashdam.record.arrow.source import ArrowSource
from splashdam.record.kernel import BlobColumn, HeaderLists


class ArrowBulk:
    """One call of ``send_arrow``, as a context manager that releases the data at its end.

    Args:
        intake: of the producer.
        topic, data, value, key, headers, partition, timestamp_ms, may_be_empty: as
            ``send_arrow`` has them.

    Attributes:
        bulk: takes the records.

    Raises:
        KafkaConfigurationError: the producer has a serializer or interceptors.
        TypeError, ValueError: an argument or the data are invalid.
        IllegalStateError: the producer is closed.
    """

    def __init__(  # noqa: PLR0917 (the arguments of send_arrow)
        self,
        intake: RecordIntake,
        topic: str,
        data: Any,
        value: str,
        key: str | None,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        *,
        may_be_empty: bool,
    ) -> None:
        _check_plain(intake)
        self._clock = intake.clock
        self._source = ArrowSource(
            data,
            value=value,
            key=key,
            key_needed=key != "key",
            headers=_column(headers),
            partition=_column(partition),
            timestamp_ms=_column(timestamp_ms),
        )
        with ExitStack() as at_failure:
            at_failure.callback(self._source.close)
            self.bulk = BulkSend(
                intake,
                topic,
                _unless_column(partition),
                _unless_column(timestamp_ms),
                _unless_column(headers),
                keyed=self._source.has_keys,
                placed=self._source.has_partitions,
                may_be_empty=may_be_empty,
            )
            at_failure.pop_all()

    def chunks(self) -> Iterator[tuple[BlobColumn, BlobColumn | None, RowParts]]:
        """Yield the arguments of ``BulkSend.add`` by chunk; the next step releases the chunk's memory."""
        while True:
            with self.bulk.naming_the_record():
                chunk = self._source.next()
                if chunk is None:
                    return
                now_ms = self._clock.wall_ms()
                headers = None if chunk.headers is None else HeaderLists.of_arrow(chunk.headers)
                rows = row_parts(headers, chunk.partitions, chunk.timestamps, now_ms, "its chunk's row")
            values = BlobColumn.of_arrow(chunk.values)
            keys = None if chunk.keys is None else BlobColumn.of_arrow(chunk.keys)
            try:
                yield values, keys, rows
            finally:
                for column in (values, keys, headers):
                    if column is not None:
                        column.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._source.close()


def _check_plain(intake: RecordIntake) -> None:
    if not intake.path.plain:
        raise KafkaConfigurationError(
            "send_arrow() sends the bytes of the columns as they are, but this producer has a serializer:"
            " use send_many(), or a producer without key_serializer and value_serializer"
        )
    if intake.chain is not None:
        raise KafkaConfigurationError(
            "send_arrow() makes no records that this producer's interceptors could see:"
            " use send_many(), or a producer without interceptors"
        )


def _column(given: Any) -> str | None:
    return given if isinstance(given, str) else None


def _unless_column(given: Any) -> Any:
    return None if isinstance(given, str) else given
