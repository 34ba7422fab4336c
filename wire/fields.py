"""Declare the fields of messages: one function per Kafka type.

A message is a class whose body reads like Kafka's schema::

    class PartitionProduceData(Struct):
        index: int = int32()
        records: Buffer | None = records(nullable="0+")

Each function takes the versions of the field and returns a `Field`. Its declared return type is that of the
*value*, so that type checkers compare the annotation with the declaration and know the constructor's
arguments. Defaults are Kafka's: zero, empty string, empty array, null records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, overload

from splashdam.model.values import Buffer

_NEWEST = 32_767  # versions are int16 on the wire


class Versions(NamedTuple):
    """An inclusive range of versions, written as in Kafka's schemas; empty if ``last`` is below ``first``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse ``"3+"``, ``"3-11"``, ``"3"`` or ``"none"``.

        Raises:
            ValueError: the text is of another form.
        """
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), _NEWEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == _NEWEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = Versions(0, -1)


if TYPE_CHECKING:
    from splashdam.wire.message import Struct

S = TypeVar("S", bound="Struct")

NO_UUID = bytes(16)
"""The topic id that stands for none."""


class SizedPart(Protocol):
    """Bytes outside of memory, for example a slice of a file; they stay a part of their own."""

    @property
    def size_bytes(self) -> int:
        """Size of the part in the frame."""
        ...


Part: TypeAlias = Buffer | SizedPart
"""A part of an encoded message."""


class FixedType(NamedTuple):
    """A type of fixed width; ``format`` is its ``struct`` format."""

    name: str
    format: str
    size_bytes: int


class SizedType(NamedTuple):
    """A type with a length prefix: ``string``, ``bytes`` or ``records``."""

    name: str


class StructType(NamedTuple):
    """A nested structure."""

    cls: type[Struct]


class ArrayType(NamedTuple):
    """An array of another type."""

    element: FixedType | SizedType | StructType


WireType: TypeAlias = FixedType | SizedType | StructType | ArrayType

BOOL = FixedType("bool", "?", 1)
INT8 = FixedType("int8", "b", 1)
INT16 = FixedType("int16", "h", 2)
INT32 = FixedType("int32", "i", 4)
INT64 = FixedType("int64", "q", 8)
UINT16 = FixedType("uint16", "H", 2)
UINT32 = FixedType("uint32", "I", 4)
FLOAT64 = FixedType("float64", "d", 8)
UUID = FixedType("uuid", "16s", 16)
STRING = SizedType("string")
BYTES = SizedType("bytes")
RECORDS = SizedType("records")


class Field(NamedTuple):
    """One declared field.

    Attributes:
        type: its wire type.
        versions: the versions that have the field.
        nullable: the versions in which it may be null.
        tag: tag of a tagged field, else None.
        default: value in versions without the field. An empty list stands for a new list, a `Struct`
            class for a new instance with defaults.
        ignorable: whether another value than the default may be dropped in versions without the field.
        name: name of the field; set when the class is created.
    """

    type: WireType
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    default: Any = None
    ignorable: bool = False
    name: str = ""


def _field(
    type_: WireType,
    versions: str,
    default: object,
    *,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    if tag is not None and _holds_records(type_):
        raise TypeError(f"tag {tag}: records cannot be a tagged field, whose size precedes it")
    return Field(type_, Versions.parse(versions), Versions.parse(nullable), tag, default, ignorable)


def _holds_records(type_: WireType) -> bool:
    inner = type_.element if isinstance(type_, ArrayType) else type_
    if isinstance(inner, StructType):
        return any(_holds_records(field.type) for field in inner.cls.FIELDS)
    return inner is RECORDS


def boolean(
    versions: str = "0+", *, default: bool = False, tag: int | None = None, ignorable: bool = False
) -> bool:
    """One byte; any value but 0 is true."""
    return cast(bool, _field(BOOL, versions, default, tag=tag, ignorable=ignorable))


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """A signed byte."""
    return cast(int, _field(INT8, versions, default, tag=tag, ignorable=ignorable))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Two bytes, signed."""
    return cast(int, _field(INT16, versions, default, tag=tag, ignorable=ignorable))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Four bytes, signed."""
    return cast(int, _field(INT32, versions, default, tag=tag, ignorable=ignorable))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Eight bytes, signed."""
    return cast(int, _field(INT64, versions, default, tag=tag, ignorable=ignorable))


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Two bytes, unsigned."""
    return cast(int, _field(UINT16, versions, default, tag=tag, ignorable=ignorable))


def uint32(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    """Four bytes, unsigned."""
    return cast(int, _field(UINT32, versions, default, tag=tag, ignorable=ignorable))


def float64(
    versions: str = "0+", *, default: float = 0.0, tag: int | None = None, ignorable: bool = False
) -> float:
    """Eight bytes, IEEE 754."""
    return cast(float, _field(FLOAT64, versions, default, tag=tag, ignorable=ignorable))


def uuid(
    versions: str = "0+", *, default: bytes = NO_UUID, tag: int | None = None, ignorable: bool = False
) -> bytes:
    """Sixteen bytes, as ``bytes``; all zero stands for none."""
    return cast(bytes, _field(UUID, versions, default, tag=tag, ignorable=ignorable))


@overload
def string(
    versions: str = "0+", *, default: str = "", tag: int | None = None, ignorable: bool = False
) -> str: ...
@overload
def string(
    versions: str = "0+",
    *,
    nullable: str,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None: ...
def string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None:
    """UTF-8 with an int16 length, or a compact length in flexible versions."""
    field = _field(STRING, versions, default, nullable=nullable, tag=tag, ignorable=ignorable)
    return cast("str | None", field)


@overload
def binary(
    versions: str = "0+", *, default: bytes = b"", tag: int | None = None, ignorable: bool = False
) -> bytes: ...
@overload
def binary(
    versions: str = "0+",
    *,
    nullable: str,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes | None: ...
def binary(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes | None:
    """Kafka's ``bytes``, with an int32 length, or a compact one in flexible versions. Decoded as a copy: such
    values (a group's assignment, a SASL token) outlive the frame."""
    field = _field(BYTES, versions, default, nullable=nullable, tag=tag, ignorable=ignorable)
    return cast("bytes | None", field)


def records(versions: str = "0+", *, nullable: str = "0+", ignorable: bool = False) -> Any:
    """Record batches: decoded as a slice of the frame without a copy, encoded by reference.

    Typed ``Any`` because declarations differ: ``Buffer | None``, or ``Part | None`` where a slice of a file
    is allowed.
    """
    return _field(RECORDS, versions, None, nullable=nullable, ignorable=ignorable)


_FIXED = {kind.name: kind for kind in (BOOL, INT8, INT16, INT32, INT64, UINT16, UINT32, FLOAT64, UUID)}
_ELEMENTS: dict[str, FixedType | SizedType] = {**_FIXED, STRING.name: STRING, BYTES.name: BYTES}


def array(
    element: type[Struct] | str,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Sequence[Any] | None = (),
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """An array of structures, given by class, or of a simple type, given by Kafka's name (``"int32"``).

    Typed ``Any``: the annotation names the element type.
    """
    kind = _ELEMENTS[element] if isinstance(element, str) else StructType(element)
    initial = None if default is None else list(default)
    return _field(ArrayType(kind), versions, initial, nullable=nullable, tag=tag, ignorable=ignorable)


@overload
def struct(cls: type[S], versions: str = "0+", *, tag: int | None = None, ignorable: bool = False) -> S: ...
@overload
def struct(
    cls: type[S],
    versions: str = "0+",
    *,
    nullable: str,
    default: None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> S | None: ...
def struct(
    cls: type[S],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> S | None:
    """A nested structure. A nullable one starts with a byte, -1 for null, and defaults to null."""
    initial = cls if nullable is None else default
    field = _field(
        StructType(cls), versions, initial, nullable=nullable or "none", tag=tag, ignorable=ignorable
    )
    return cast("S | None", field)
