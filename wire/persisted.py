"""Keys and values of records in the brokers' internal topics: declared like messages, with a version prefix.

The format is Kafka's ``MessageUtil.toVersionPrefixedBytes``. Such structures have versions but no API key.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TypeVar

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.codec import decode, encode
from splashdam.wire.message import Message

_VERSION = Layout(">h")


class Persisted(Message):
    """The key or value of a record in an internal topic."""


P = TypeVar("P", bound=Persisted)


def encode_persisted(message: Persisted, version: int) -> bytes:
    """Encode the version, then the structure in that version.

    Raises:
        ProtocolError: as ``codec.encode``.
    """
    parts = [part for part in encode(message, version) if isinstance(part, bytes | bytearray | memoryview)]
    return b"".join([_VERSION.pack(version), *parts])


def version_of(data: Buffer) -> int:
    """Return the version prefix.

    Raises:
        ProtocolError: there are fewer than two bytes.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes hold no version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_persisted(cls: type[P], data: Buffer) -> P:
    """Decode what ``encode_persisted`` made, in any declared version.

    Raises:
        ProtocolError: the bytes are no such structure, or have an undeclared version.
    """
    return decode(cls, data, version_of(data), position=_VERSION.size)
