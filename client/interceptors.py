"""Hooks of the application: interceptors for single records, and ``on_batch`` for whole batches.

Semantics of interceptors are those of Java's ``ProducerInterceptor``. Imported only with a hook.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import attrs

from splashdam.accumulator.batch import ProducerBatch
from splashdam.client.sending.arguments import header_pairs
from splashdam.model.values import BatchMetadata, HeaderPairs, RecordMetadata, TopicPartition
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome import fresh

logger = logging.getLogger("splashdam.client")


def _pairs(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return () if headers is None else tuple(header_pairs(headers))


@attrs.frozen
class ProducerRecord:
    """A record as passed to ``send``, before serialization; copy it with ``attrs.evolve``.

    Attributes:
        topic: name of the topic.
        value, key: as the application gave them.
        headers: in order; a dict becomes pairs.
        partition: the partition that the application gave; None: the partitioner decides.
        timestamp_ms: milliseconds since the epoch; None: the time of ``send``.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(default=(), converter=_pairs)
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """Base class for the interceptors of applications: override the methods you need.

    Any object with one of these methods will do. Methods may be called by several threads at once. The only
    subclass that we ship is ``observing.otel.TracingInterceptor``.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called in ``send``, in the caller's thread, with the record of the previous interceptor.

        Returns:
            the record to send: this one or another. If it raises or returns anything else, that is logged,
            and the chain continues with ``record``.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Called once for each record, before the callbacks of its future. It must not wait.

        It runs on the sender's thread, or in the caller's if ``send`` itself failed. Its errors are logged.

        Args:
            metadata: where the record went. If it failed: topic, partition (-1 if unknown) and offset -1.
            error: why it failed; None if it was delivered.

        An optional third parameter receives the record's headers as sent (KIP-512).
        """

    def close(self) -> None:
        """Called once when the producer is closed. Its errors are logged."""


class InterceptorChain:
    """The interceptors of a producer, in order.

    Args:
        interceptors: as the application gave them.
    """

    def __init__(self, interceptors: Iterable[Any]) -> None:
        self._all = tuple(interceptors)
        self._senders = _methods(self._all, "on_send")
        self._listeners = [_with_headers(each) for each in _methods(self._all, "on_acknowledgement")]

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass the record through all interceptors; return the record to send."""
        for on_send in self._senders:
            try:
                answer = on_send(record)
            except Exception:
                logger.exception("%s raised; the record is sent without its change", _name(on_send))
                continue
            if isinstance(answer, ProducerRecord):
                record = answer
            else:
                logger.error(
                    "%s returned %r, not a ProducerRecord; the record is sent without its change",
                    _name(on_send),
                    type(answer),
                )
        return record

    def settled(
        self,
        topic_partition: TopicPartition,
        headers: HeaderPairs | None,
        result: RecordMetadata | BaseException,
    ) -> None:
        """Report a delivered or failed record to all interceptors."""
        metadata, error = (
            (_nowhere(topic_partition), result) if isinstance(result, BaseException) else (result, None)
        )
        for on_acknowledgement in self._listeners:
            try:
                on_acknowledgement(metadata, error, headers or ())
            except Exception:
                logger.exception("%s raised", _name(on_acknowledgement))

    def close(self) -> None:
        """Close the interceptors that have a ``close``."""
        for close in _methods(self._all, "close"):
            try:
                close()
            except Exception:
                logger.exception("%s raised", _name(close))


def load_interceptors(text: str) -> list[Any]:
    """Make interceptors from ``interceptor.classes``: dotted names of classes without arguments.

    Raises:
        ValueError: a class cannot be imported or instantiated.
    """
    return [_load(name.strip()) for name in text.split(",") if name.strip()]


def _load(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise ValueError(
            f"{name!r} is not a class that can be instantiated without arguments ({error}):"
            " give the dotted name of a Python class, or pass interceptors=[…] to the constructor"
        ) from error


def _methods(interceptors: Iterable[Any], name: str) -> list[Any]:
    return [method for each in interceptors if (method := getattr(each, name, None)) is not None]


def _with_headers(method: Any) -> Any:
    """Wrap the method to accept a third argument, if it does not take one."""
    parameters = inspect.signature(method).parameters.values()
    takes_all = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if takes_all or len(positional) > 2:
        return method

    @wraps(method)
    def without_headers(metadata: RecordMetadata, error: BaseException | None, _headers: HeaderPairs) -> None:
        method(metadata, error)

    return without_headers


def _name(method: Any) -> str:
    method = inspect.unwrap(method)
    return f"{type(getattr(method, '__self__', method)).__name__}.{getattr(method, '__name__', '')}()"


def _nowhere(topic_partition: TopicPartition) -> RecordMetadata:
    return RecordMetadata(*topic_partition, topic_partition, -1, -1, None, -1, -1, -1)


class BatchListener:
    """Calls the application's function with each batch that was delivered or has failed.

    Args:
        function: is called on the sender's thread, after the callbacks of the batch's records and under the
            same rules: what it raises is logged, and it may send, but not wait.
    """

    def __init__(self, function: Callable[[BatchMetadata], object]) -> None:
        self._function = function

    def __call__(self, batch: ProducerBatch) -> None:
        before = outcome_table.enter_callbacks()
        try:
            self._function(_metadata(batch))
        # As for a callback of a record: even ``SystemExit`` must not end the thread that sends.
        except BaseException as error:
            outcome_table.on_callback_error(error)
        finally:
            outcome_table.leave_callbacks(before)


def _metadata(batch: ProducerBatch) -> BatchMetadata:
    outcome = batch.outcome
    appended_ms, error = outcome.log_append_time_ms, outcome.error
    return BatchMetadata(
        batch.topic_partition,
        outcome.base_offset,
        batch.record_count,
        batch.base_timestamp_ms if appended_ms < 0 else appended_ms,
        batch.max_timestamp_ms if appended_ms < 0 else appended_ms,
        None if error is None else fresh(error),
    )
