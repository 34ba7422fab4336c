"""Avro values: as Confluent's serializers write them, as single objects, or bare."""

from __future__ import annotations

import datetime
import enum
import io
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.pipeline.values.avro_schemas import arrow_type, fingerprint, parsed
from splashdam.pipeline.values.verdicts import BadValueError, Decoded, Reason, verdicts

if TYPE_CHECKING:
    import pyarrow as pa


class Framing(enum.StrEnum):
    """What stands before the record in a value."""

    CONFLUENT = "confluent"
    """A zero byte and the schema's id in a registry, four bytes, big-endian."""
    SINGLE_OBJECT = "single-object"
    """Avro's own: C3 01 and the schema's fingerprint, eight bytes, little-endian."""
    BARE = "bare"
    """Nothing: every value was written with the schema itself."""


@attrs.frozen
class AvroFormat:
    """Values are Avro records.

    Attributes:
        schema: JSON of the schema that makes the columns; Avro's rules for schema resolution lead there from
            the schema that a value was written with.
        framing: what stands before the record.
        writers: JSON of the schemas that values were written with, by their ids in the registry. With
            ``single-object`` the ids do not matter, and ``schema`` is one of the writers.
    """

    schema: str
    framing: Framing = Framing.CONFLUENT
    writers: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def type(self) -> pa.StructType:
        """Of the decoded structs.

        Raises:
            KafkaConfigurationError: see ``arrow_type``.
        """
        return arrow_type(parsed(self.schema, "the schema"))

    def open(self) -> AvroDecoder:
        """A decoder for this process.

        Raises:
            KafkaConfigurationError: fastavro is missing, or a schema is none.
        """
        return AvroDecoder(self)


class AvroDecoder:
    """See ``AvroFormat``."""

    def __init__(self, form: AvroFormat) -> None:
        self._reader = parsed(form.schema, "the schema")
        self._type = arrow_type(self._reader)
        writers = {number: parsed(text, f"schema {number}") for number, text in form.writers.items()}
        self._unframe = _UNFRAMERS[form.framing](self._reader, writers)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """The verdict on each value, in order."""
        return verdicts(map(self._verdict, values.to_pylist()), self._type)

    def _verdict(self, value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            writer, body = self._unframe(value)
            return self._read(body, writer)
        except BadValueError as bad:
            return bad

    def _read(self, body: bytes, writer: Any) -> Any:
        from fastavro import schemaless_reader

        stream = io.BytesIO(body)
        try:
            record: Any = schemaless_reader(stream, writer, None if writer is self._reader else self._reader)
            read = {name: _plain(value) for name, value in record.items()}
        except UnicodeDecodeError:
            raise BadValueError(Reason.NOT_UTF8, "a string in the record is not UTF-8") from None
        except OverflowError as error:
            raise BadValueError(Reason.OUT_OF_RANGE, str(error)) from None
        except Exception as error:  # fastavro tells of foreign bytes by whatever they make it stumble over
            raise BadValueError(
                Reason.NOT_AVRO, f"not of the schema: {str(error) or type(error).__name__}"
            ) from None
        left = len(body) - stream.tell()
        if left:
            raise BadValueError(Reason.TRAILING_BYTES, f"{left} bytes follow the record")
        return read


def _plain(value: Any) -> Any:
    """What Arrow takes for a column of the types that ``arrow_type`` gives."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.time):
        since_midnight = datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min
        return since_midnight // datetime.timedelta(microseconds=1)
    return value


Unframe = Callable[[bytes], tuple[Any, bytes]]


def _confluent(_reader: Any, writers: Mapping[int, Any]) -> Unframe:
    def unframe(value: bytes) -> tuple[Any, bytes]:
        if len(value) < 5 or value[0] != 0:
            raise BadValueError(Reason.NO_SCHEMA_ID, "does not begin with a zero byte and a schema id")
        number = int.from_bytes(value[1:5], "big")
        if number not in writers:
            raise BadValueError(Reason.UNKNOWN_SCHEMA, f"no schema was given for id {number}")
        return writers[number], value[5:]

    return unframe


def _single_object(reader: Any, writers: Mapping[int, Any]) -> Unframe:
    known = {fingerprint(schema): schema for schema in (*writers.values(), reader)}

    def unframe(value: bytes) -> tuple[Any, bytes]:
        if len(value) < 10 or value[:2] != b"\xc3\x01":
            raise BadValueError(Reason.NO_SCHEMA_ID, "does not begin with C3 01 and a fingerprint")
        if value[2:10] not in known:
            raise BadValueError(
                Reason.UNKNOWN_SCHEMA, f"no schema was given for fingerprint {value[2:10].hex()}"
            )
        return known[value[2:10]], value[10:]

    return unframe


def _bare(reader: Any, _writers: Mapping[int, Any]) -> Unframe:
    return lambda value: (reader, value)


_UNFRAMERS = {
    Framing.CONFLUENT: _confluent,
    Framing.SINGLE_OBJECT: _single_object,
    Framing.BARE: _bare,
}
