"""``send_arrow``: sends the chunks of Arrow data through a ``BulkSend``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from contextlib import ExitStack
from itertools import repeat
from types import TracebackType
from typing import Any, Self

from splashdam.client.bulk.arguments import is_arrow, is_many, is_one_for_all, listed
from splashdam.client.bulk.sending import BulkSend, RowParts, row_parts
from splashdam.client.sending.intake import RecordIntake
from splashdam.model.errors import KafkaConfigurationError
from splashdam.record.arrow.beside import ArrowRows
from splashdam.record.arrow.source import ArrowSource
from splashdam.record.kernel import BlobColumn, HeaderLists
from splashdam.record.kernel.bulk.blob_column import ArrowParts
from splashdam.record.kernel.bulk.header_lists import ListParts


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
        intake: RecordIntake[Any],
        topic: str,
        data: Any,
        value: str,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        *,
        may_be_empty: bool,
    ) -> None:
        _check_plain(intake)
        if not isinstance(value, str):
            raise TypeError(
                f"value must be the name of a column, not {type(value).__name__}: an array of values is the"
                " data itself, send_arrow(topic, array)"
            )
        self._clock = intake.clock
        beside = {
            name: part
            for name, given in (
                ("key", key),
                ("headers", headers),
                ("partition", partition),
                ("timestamp_ms", timestamp_ms),
            )
            if (part := _beside(name, given)) is not None
        }
        _check_lengths(data, beside)
        source = ArrowSource(
            data,
            value=value,
            key=_column(key),
            key_needed=key != "key" if isinstance(key, str) else False,
            headers=_column(headers),
            partition=_column(partition),
            timestamp_ms=_column(timestamp_ms),
        )
        self._rows = ArrowRows(source, beside)
        with ExitStack() as at_failure:
            # `BulkSend` may refuse its arguments, and then nobody else would release the data.
            at_failure.callback(self._rows.close)
            self.bulk = BulkSend(
                intake,
                topic,
                None if "partition" in beside else _unless_column(partition),
                None if "timestamp_ms" in beside else _unless_column(timestamp_ms),
                None if "headers" in beside else _unless_column(headers),
                keyed=self._rows.has_keys,
                placed=self._rows.has_partitions,
                may_be_empty=may_be_empty,
            )
            at_failure.pop_all()

    def chunks(self) -> Iterator[tuple[BlobColumn, BlobColumn | None, RowParts]]:
        """Yield the arguments of ``BulkSend.add`` by chunk; the next step releases the chunk's memory."""
        while True:
            with self.bulk.naming_the_record():
                chunk = self._rows.next()
                if chunk is None:
                    return
                now_ms = self._clock.wall_ms()
                headers: Any = chunk.headers
                if isinstance(headers, ListParts):
                    headers = HeaderLists.of_arrow(headers)
                rows = row_parts(headers, chunk.partitions, chunk.timestamps, now_ms, "its chunk's row")
            values = BlobColumn.of_arrow(chunk.values)
            keys = _keys(chunk.keys)
            try:
                yield values, keys, rows
            finally:
                for column in (values, keys, headers):
                    if isinstance(column, BlobColumn | HeaderLists):
                        column.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._rows.close()


def _check_plain(intake: RecordIntake[Any]) -> None:
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


def _beside(name: str, given: Any) -> Any:
    """Return what gives each row this part and is no column of the data; None if there is no such thing."""
    if given is None or isinstance(given, str):
        return None
    if is_arrow(given):
        return given
    if name == "headers":
        return None if is_one_for_all(given) else listed(given)
    if is_many(given):
        return listed(given)
    return repeat(given) if name == "key" else None


def _check_lengths(data: Any, beside: Mapping[str, Any]) -> None:
    """Compare lengths before anything is queued; streams say theirs only at the end.

    Raises:
        ValueError: a part has not as many rows as the data.
    """
    count = _count(data)
    for name, part in beside.items():
        found = _count(part)
        if count is not None and found is not None and found != count:
            plural = {"key": "keys", "partition": "partitions", "timestamp_ms": "timestamps"}.get(name, name)
            raise ValueError(f"{count} values, but {found} {plural}")


def _count(data: Any) -> int | None:
    return None if isinstance(data, type) or not isinstance(data, Sized) else len(data)


def _keys(part: Any) -> BlobColumn | None:
    if part is None:
        return None
    return BlobColumn.of_arrow(part) if isinstance(part, ArrowParts) else BlobColumn.of_objects(list(part))


def _column(given: Any) -> str | None:
    return given if isinstance(given, str) else None


def _unless_column(given: Any) -> Any:
    return None if isinstance(given, str) else given
