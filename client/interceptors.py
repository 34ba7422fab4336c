"""What the application hooks into a producer: interceptors, which see every record before it is sent and what
became of it, and ``on_batch``, which hears of whole batches.

Semantics of interceptors are those of Java's ``ProducerInterceptor``. A producer without any hook never loads
this.
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
    """A record as it was given to ``send``, before serializers; ``attrs.evolve`` makes another one of it.

    Attributes:
        topic: name of the topic.
        value, key: as the application gave them.
        headers: in order; a dict becomes pairs.
        partition: where the application wants it; None: the partitioner decides.
        timestamp_ms: milliseconds since the epoch; None: the time at which it is sent.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(default=(), converter=_pairs)
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor:
    """A base for interceptors: overwrite what is needed.

    Anything with one of these methods will do. They may be called by several threads at once.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called in ``send``, in the caller's thread, with what the interceptor before has answered.

        Returns:
            the record to send: this one or another. If it raises, or returns anything else, that is logged
            and the chain goes on with the record it was given.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Called once for each record, before the callbacks of its future: on the sender's thread, or, where
        ``send`` itself has failed, in the caller's. What it raises is logged. It must not wait.

        Args:
            metadata: where the record went. If it failed: topic, partition (-1 where it had none) and -1.
            error: why it failed; None if it was delivered.

        A third parameter, if there is one, gets the record's headers as they were sent (Java's KIP-512).
        """

    def close(self) -> None:
        """Called once when the producer is closed. What it raises is logged."""


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
        """The record to send."""
        for on_send in self._senders:
            try:
                answer = on_send(record)
            except Exception:
                logger.exception("%s raised; the record goes on as it was", _name(on_send))
                continue
            if isinstance(answer, ProducerRecord):
                record = answer
            else:
                logger.error(
                    "%s returned %r, not a ProducerRecord; the record goes on as it was",
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
        """A record was delivered, or has failed."""
        metadata, error = (
            (_nowhere(topic_partition), result) if isinstance(result, BaseException) else (result, None)
        )
        for on_acknowledgement in self._listeners:
            try:
                on_acknowledgement(metadata, error, headers or ())
            except Exception:
                logger.exception("%s raised", _name(on_acknowledgement))

    def close(self) -> None:
        """Closes those that can be."""
        for close in _methods(self._all, "close"):
            try:
                close()
            except Exception:
                logger.exception("%s raised", _name(close))


def load_interceptors(text: str) -> list[Any]:
    """Interceptors from ``interceptor.classes``: dotted names of classes, made without arguments.

    Raises:
        ValueError: one cannot be found or made.
    """
    return [_load(name.strip()) for name in text.split(",") if name.strip()]


def _load(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise ValueError(
            f"{name!r} is no class that can be made without arguments ({error}):"
            " give the dotted name of a Python class, or pass interceptors=[…] to the constructor"
        ) from error


def _methods(interceptors: Iterable[Any], name: str) -> list[Any]:
    return [method for each in interceptors if (method := getattr(each, name, None)) is not None]


def _with_headers(method: Any) -> Any:
    """The method, to be called with three arguments, whether it takes the third or not."""
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
