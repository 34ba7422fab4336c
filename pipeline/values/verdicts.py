"""The verdict on each value: decoded columns, or the reason why it is bad."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from splashdam.model.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_DETAIL = 500
"""Characters of a detail that are kept: a detail may quote a value, and travels in a header."""


class Reason(enum.StrEnum):
    """Why a value is bad: words that programs may rely on."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    """Also JSON followed by something else, and JSON that is nested too deeply."""
    MISSING_FIELD = "missing_field"
    """A required field is absent or null."""
    UNKNOWN_FIELD = "unknown_field"
    DUPLICATE_FIELD = "duplicate_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    """A number that its type cannot hold, or a time outside the calendar."""
    NOT_AVRO = "not_avro"
    """The bytes end too early, or cannot have been written with the schema."""
    TRAILING_BYTES = "trailing_bytes"
    NO_SCHEMA_ID = "no_schema_id"
    """The value does not begin as its wire format requires."""
    UNKNOWN_SCHEMA = "unknown_schema"


class BadValueError(KafkaError):
    """A value does not fit its schema.

    Attributes:
        reason: the kind of misfit.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@attrs.frozen
class Decoded:
    """The verdicts on the values of one array.

    Attributes:
        values: structs of the fields; null for a bad value, and for a null one (a tombstone), which is good.
        reasons: strings, null for good values.
        details: messages for people, null for good values.
    """

    values: pa.StructArray
    reasons: pa.StringArray
    details: pa.StringArray


class OpenDecoder(Protocol):
    """A decoder in the process that opened it."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return the verdicts, in the order of the values."""


class ValueFormat(Protocol):
    """How values are written. It can be pickled, and travels to workers."""

    @property
    def type(self) -> pa.StructType:
        """The type of the decoded structs; every field is nullable, because a bad value has none."""

    def open(self) -> OpenDecoder:
        """Open a decoder in this process."""


def all_nullable(kind: pa.DataType) -> pa.DataType:
    """Return the type with nullable fields at every depth."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, all_nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, all_nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, all_nullable(kind.value_type)))
    return kind


def verdicts(rows: Iterable[Any], kind: pa.StructType) -> Decoded:
    """Make verdicts of one Python object per row: a dict, None, or a ``BadValueError``.

    A value that its column cannot hold, such as an Avro int that was written with 64 bits, makes its row bad.
    """
    import pyarrow as pa

    found = list(rows)
    try:
        return _columns(found, kind)
    except (pa.ArrowException, OverflowError):
        return _columns([_fitting(row, kind) for row in found], kind)


def _fitting(row: Any, kind: pa.StructType) -> Any:
    import pyarrow as pa

    if isinstance(row, BadValueError):
        return row
    try:
        pa.array([row], kind)
    except (pa.ArrowException, OverflowError) as error:
        return BadValueError(Reason.OUT_OF_RANGE, f"its column cannot hold it: {error}")
    return row


def _columns(rows: list[Any], kind: pa.StructType) -> Decoded:
    import pyarrow as pa

    values, reasons, details = [], [], []
    for row in rows:
        bad = isinstance(row, BadValueError)
        values.append(None if bad else row)
        reasons.append(row.reason.value if bad else None)
        details.append(_short(row) if bad else None)
    return Decoded(pa.array(values, kind), pa.array(reasons, pa.string()), pa.array(details, pa.string()))


def _short(bad: BadValueError) -> str:
    text = str(bad)[:LONGEST_DETAIL]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
