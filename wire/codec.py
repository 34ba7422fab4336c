"""Messages to bytes and back, through codecs compiled on first use.

Semantics are Kafka's protocol guide and KIP-482 (flexible versions, tagged fields). The compiled functions
know no field names; when one fails, the message runs once more through a tracing twin that knows where it is.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeVar

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.decoder import Decoder, compile_decoder
from splashdam.wire.encoder import Encoder, compile_encoder
from splashdam.wire.fields import Part
from splashdam.wire.message import Message
from splashdam.wire.primitives import TAGGED_FIELDS_PER_ELEMENT, IllegalBytes, TooManyElements

M = TypeVar("M", bound=Message)

_BROKEN = (IllegalBytes, struct.error, IndexError, ValueError)
_UNFIT = (IllegalBytes, struct.error, AttributeError, TypeError, ValueError)
_EXPLAINED_BYTES = 1 << 20  # above that a broken message is not worth decoding once more
_DECODERS: dict[tuple[type[Message], int], Decoder] = {}
_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}


def encode(message: Message, version: int) -> list[Part]:
    """Encodes a message's body.

    Returns:
        Its parts in order: small pieces joined, records of 64 KiB and more by reference, file slices as they
        are.

    Raises:
        ProtocolError: the version is not declared, a value does not fit its type, or the version lacks a
            field that has a value and must not be dropped.
    """
    encoder = _ENCODERS.get((type(message), version)) or _encoder(type(message), version)
    out: list[Buffer] = []
    parts: list[Part] = []
    try:
        encoder(message, out, parts)
    except _UNFIT as error:
        _explain_encoding(message, version, error)
    if out:
        parts.append(b"".join(out))
    return parts


class ManyElementsError(Exception):
    """A request names more elements than ``decode`` was told to take, but perhaps none too many."""


def decode(
    cls: type[M],
    data: Buffer,
    version: int,
    *,
    position: int = 0,
    allow_trailing: bool = False,
    most_elements: int | None = None,
) -> M:
    """Decodes a body that starts at ``position`` and fills the rest of ``data``.

    ``records`` fields are slices of ``data``, not copies. Lengths are checked before anything is allocated.

    Args:
        cls: the message class.
        data: a frame or a body.
        version: which version the bytes are.
        position: where the body starts.
        allow_trailing: accept bytes behind the message, as in a version 0 answer to an ApiVersions request
            that the broker does not know.
        most_elements: of a request, in all its arrays, so that this takes no longer; None: as many as a
            request may have.

    Raises:
        ManyElementsError: there are more.
        ProtocolError: the bytes are not such a message; the text names message, field and position (of a
            message above 1 MiB the message alone).
    """
    decoder = _DECODERS.get((cls, version)) or _decoder(cls, version)
    view = memoryview(data)
    limits = () if most_elements is None else (most_elements, most_elements * TAGGED_FIELDS_PER_ELEMENT)
    try:
        message, end = decoder(view, position, len(view), *limits)
    except _BROKEN as error:
        if limits and isinstance(error, TooManyElements):
            traceback.clear_frames(error.__traceback__)
            raise ManyElementsError from None
        _explain_decoding(cls, version, view, position, error)
    if end != len(view) and not allow_trailing:
        raise ProtocolError(f"{cls.NAME} v{version}: {len(view) - end} bytes are left behind byte {end}")
    return message  # type: ignore[no-any-return]  # compiled code is untyped


def _decoder(cls: type[Message], version: int) -> Decoder:
    _check_version(cls, version)
    decoder = compile_decoder(cls, version, cls.is_flexible(version))
    return _DECODERS.setdefault((cls, version), decoder)


def _encoder(cls: type[Message], version: int) -> Encoder:
    _check_version(cls, version)
    encoder = compile_encoder(cls, version, cls.is_flexible(version))
    return _ENCODERS.setdefault((cls, version), encoder)


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.VERSIONS:
        raise ProtocolError(
            f"{cls.NAME} v{version} is not declared, only v{cls.VERSIONS[0]} to v{cls.VERSIONS[-1]}"
        )


class _Trace:
    """Where the tracing twin is: the path of fields and indexes, and the byte where the last one starts."""

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.position = 0

    def __call__(self, depth: int, step: str | int, position: int) -> None:
        self.path += [""] * (depth - len(self.path))  # a structure in place has no index
        self.path[depth:] = [step]
        self.position = position

    def __str__(self) -> str:
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if step else ""
        return text.removeprefix(".")


@cache
def _tracing_decoder(cls: type[Message], version: int) -> Decoder:
    return compile_decoder(cls, version, cls.is_flexible(version), traced=True)


@cache
def _tracing_encoder(cls: type[Message], version: int) -> Encoder:
    return compile_encoder(cls, version, cls.is_flexible(version), traced=True)


def _explain_decoding(
    cls: type[Message], version: int, view: memoryview, position: int, error: Exception
) -> NoReturn:
    reason = str(error) if isinstance(error, IllegalBytes | UnicodeDecodeError) else "the bytes end here"
    # The frames of the attempt hold what it has decoded, many times the size of its bytes.
    traceback.clear_frames(error.__traceback__)
    if len(view) > _EXPLAINED_BYTES:
        raise ProtocolError(f"{cls.NAME} v{version}: {reason}") from None
    twin = _tracing_decoder(cls, version)
    trace = _Trace()
    trace.position = position
    _run_traced(lambda: twin(view, position, len(view), trace))
    raise ProtocolError(f"{cls.NAME} v{version}: {trace} at byte {trace.position}: {reason}") from None


def _explain_encoding(message: Message, version: int, error: Exception) -> NoReturn:
    cls = type(message)
    twin = _tracing_encoder(cls, version)
    trace = _Trace()
    _run_traced(lambda: twin(message, [], [], trace))
    raise ProtocolError(f"{cls.NAME} v{version}: {trace}: {error}") from error


def _run_traced(twin: Callable[[], Any]) -> None:
    try:
        twin()
    except _UNFIT + _BROKEN:
        return
