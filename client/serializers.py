"""How keys and values become bytes. The interface is kafka-python's: ``serialize(topic, headers, data)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from splashdam.client.sending.arguments import positional_count
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import Buffer

SerializerHeaders: TypeAlias = list[tuple[str, bytes | None]]
"""The record's headers; a serializer may append to them (a schema id, for example)."""

SerializeFunction: TypeAlias = Callable[[str, SerializerHeaders, Any], Buffer | None]
"""What every accepted serializer is turned into: ``(topic, headers, data) -> bytes or None``."""


class Serializer(ABC):
    """Turns a key or a value into bytes. One instance may be called by several threads at once."""

    @abstractmethod
    def serialize(self, topic: str, headers: SerializerHeaders, data: Any) -> Buffer | None:
        """The bytes of ``data``; ``None`` stands for a null key or value.

        Args:
            topic: the topic of the record.
            headers: the record's headers; entries appended here are sent with it.
            data: what the application gave as key or value, ``None`` included.

        Raises:
            Exception: anything; it reaches the caller of ``send`` as it is, and nothing is queued.
        """

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Called once when the producer is closed."""


class DefaultSerializer(Serializer):
    """Text becomes bytes of ``encoding``; bytes-like values and ``None`` pass as they are.

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
    """Anything ``json.dumps`` takes; ``None`` stays null, so that a tombstone can be sent."""

    def serialize(self, topic: str, headers: SerializerHeaders, data: Any) -> Buffer | None:
        import json  # late: few use this, and everybody would wait for it

        return None if data is None else json.dumps(data).encode(self.encoding)


def serialize_function(serializer: Any, option: str) -> SerializeFunction | None:
    """One calling convention for everything that is accepted as ``key_serializer`` or ``value_serializer``.

    Accepted: ``None``, a ``Serializer``, an object with kafka-python's ``serialize(topic, headers, data)`` or
    2.x's ``serialize(topic, data)``, and a plain callable ``f(data)``. Which one it is, is decided here once.

    Raises:
        KafkaConfigurationError: it is none of these.
    """
    if serializer is None:
        return None
    method = getattr(serializer, "serialize", None)
    if method is None:
        if not callable(serializer):
            raise KafkaConfigurationError(
                f"{option}={serializer!r} is neither a Serializer nor callable;"
                " give a Serializer or f(data) -> bytes"
            )
        return lambda _topic, _headers, data: serializer(data)
    if positional_count(method) == 2:
        return lambda topic, _headers, data: method(topic, data)
    function: SerializeFunction = method
    return function
