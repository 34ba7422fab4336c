"""Serializers for keys and values, with kafka-python's interface: ``serialize(topic, headers, data)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from splashdam.client.sending.arguments import positional_count
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import shown
from splashdam.model.values import Buffer

if TYPE_CHECKING:  # type checkers know it; at run time there is no need for it, nor for the defaults
    from typing_extensions import TypeVar

    DataT = TypeVar("DataT", default=Any)
    KeyT = TypeVar("KeyT", default=Any)
    ValueT = TypeVar("ValueT", default=Any)
else:
    from typing import TypeVar

    DataT, KeyT, ValueT = TypeVar("DataT"), TypeVar("KeyT"), TypeVar("ValueT")

SerializerHeaders: TypeAlias = list[tuple[str, bytes | None]]
"""The record's headers; a serializer may append to them, for example a schema id."""

SerializeFunction: TypeAlias = Callable[[str, SerializerHeaders, Any], Buffer | None]
"""The calling convention of adapted serializers: ``(topic, headers, data) -> bytes or None``."""


class Serializer(ABC, Generic[DataT]):
    """Turns a key or a value into bytes. One instance may be called by several threads at once.

    ``Serializer[Order]`` says to type checkers what it takes, and so what the producer's ``send`` takes.
    """

    @abstractmethod
    def serialize(self, topic: str, headers: SerializerHeaders, data: DataT) -> Buffer | None:
        """Return the bytes of ``data``; ``None`` for a null key or value.

        Args:
            topic: the topic of the record.
            headers: the record's headers; entries appended here are sent with it.
            data: what the application gave as key or value, ``None`` included.

        Raises:
            Exception: any; it propagates to the caller of ``send``, and nothing is queued.
        """

    def close(self) -> None:
        """Called once when the producer is closed."""


class DefaultSerializer(Serializer[Any]):
    """Encodes text with ``encoding``; bytes-like values and ``None`` pass unchanged.

    Args:
        encoding: default ``"utf-8"``.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: SerializerHeaders, data: Any) -> Buffer | None:
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        encoded: bytes = data.encode(self.encoding)
        return encoded


class JsonSerializer(DefaultSerializer):
    """Serializes with ``json.dumps``; ``None`` stays null, so that tombstones can be sent."""

    def serialize(self, topic: str, headers: SerializerHeaders, data: Any) -> Buffer | None:
        import json  # lazy: most producers do not need it

        return None if data is None else json.dumps(data).encode(self.encoding)


def serialize_function(serializer: Any, option: str) -> SerializeFunction | None:
    """Adapt a ``key_serializer`` or ``value_serializer`` to one calling convention.

    Accepted are ``None``, a ``Serializer``, an object with kafka-python's ``serialize(topic, headers, data)``
    or 2.x's ``serialize(topic, data)``, and a plain callable ``f(data)``.

    Raises:
        KafkaConfigurationError: it is something else.
    """
    if serializer is None:
        return None
    method = getattr(serializer, "serialize", None)
    if method is None:
        if not callable(serializer):
            raise KafkaConfigurationError(
                f"{option}={shown(serializer)} is neither a Serializer nor callable;"
                " give a Serializer or f(data) -> bytes"
            )
        return lambda _topic, _headers, data: serializer(data)
    if positional_count(method) == 2:
        return lambda topic, _headers, data: method(topic, data)
    function: SerializeFunction = method
    return function
