"""Avro values (framed by Confluent's serializers, as single objects, or bare) and Avro schemas."""

from __future__ import annotations

import datetime
import enum
import io
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.verdicts import BadValueError, Decoded, Reason, verdicts

if TYPE_CHECKING:
    import pyarrow as pa


class Framing(enum.StrEnum):
    """What precedes the record in a value."""

    CONFLUENT = "confluent"
    """A zero byte and the schema's id in the registry, four bytes, big-endian."""
    SINGLE_OBJECT = "single-object"
    """Avro's own: C3 01 and the schema's fingerprint, eight bytes, little-endian."""
    BARE = "bare"
    """Nothing: every value was written with the reader's schema."""


@attrs.frozen
class AvroFormat:
    """Values are Avro records.

    Attributes:
        schema: JSON of the reader's schema, which determines the columns. Values of other schemas are
            converted by Avro's schema resolution.
        framing: what precedes the record.
        writers: JSON of the writers' schemas by their ids in the registry. With ``single-object`` the ids do
            not matter, and ``schema`` is one of the writers'.
    """

    schema: str
    framing: Framing = Framing.CONFLUENT
    writers: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def type(self) -> pa.StructType:
        """The type of the decoded structs.

        Raises:
            KafkaConfigurationError: see ``arrow_type``.
        """
        return arrow_type(parsed(self.schema, "the schema"))

    def open(self) -> AvroDecoder:
        """Open a decoder in this process.

        Raises:
            KafkaConfigurationError: fastavro is not installed, or a schema is invalid.
        """
        return AvroDecoder(self)


class AvroDecoder:
    """Decodes values of an `AvroFormat`."""

    def __init__(self, form: AvroFormat) -> None:
        self._reader = parsed(form.schema, "the schema")
        self._type = arrow_type(self._reader)
        writers = {number: parsed(text, f"schema {number}") for number, text in form.writers.items()}
        self._unframe = _UNFRAMERS[form.framing](self._reader, writers)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return the verdicts, in the order of the values."""
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
        except Exception as error:  # on invalid bytes fastavro raises whatever they happen to cause
            raise BadValueError(
                Reason.NOT_AVRO, f"not of the schema: {str(error) or type(error).__name__}"
            ) from None
        left = len(body) - stream.tell()
        if left:
            raise BadValueError(Reason.TRAILING_BYTES, f"{left} bytes follow the record")
        return read


def _plain(value: Any) -> Any:
    """Convert a value to what Arrow accepts for the types that ``arrow_type`` returns."""
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


NEEDS_FASTAVRO = "Avro needs fastavro: pip install 'splashdam[avro]'"


def parsed(text: str, name: str) -> Any:
    """Parse a schema with fastavro, and check that decoding with it is bounded.

    Args:
        text: JSON.
        name: of the file, for messages.

    Raises:
        KafkaConfigurationError: it is not an Avro schema of a record, or fastavro is not installed.
    """
    try:
        import fastavro.schema
    except ImportError as error:
        raise KafkaConfigurationError(NEEDS_FASTAVRO) from error
    try:
        schema = fastavro.schema.parse_schema(json.loads(text))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
    ) as error:
        raise KafkaConfigurationError(f"{name} is not an Avro schema: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise KafkaConfigurationError(f"{name} is not the schema of a record, which columns need")
    _Bounds(name).check(schema)
    return schema


def parsed_file(path: Path) -> Any:
    """Parse an ``.avsc`` file.

    Raises:
        KafkaConfigurationError: see ``parsed``; or the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaConfigurationError(f"cannot read {path}: {error}") from error
    return parsed(text, str(path))


def fingerprint(schema: Any) -> bytes:
    """Return the fingerprint in single objects: CRC-64-AVRO of the canonical form, little-endian."""
    import fastavro.schema

    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


class _Bounds:
    """Refuses schemas with which a few bytes could exhaust a worker's memory or stack."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()

    def check(self, schema: Any) -> bool:
        """Check a schema; return whether its values may take no bytes at all."""
        if isinstance(schema, list):
            for branch in schema:
                self.check(branch)
            return False
        if isinstance(schema, str):
            if schema in self._open:
                raise KafkaConfigurationError(
                    f"{self._name}: {schema} contains a {schema}, and recursive values are not decoded"
                )
            return schema == "null" or (schema in self._named and self.check(self._named[schema]))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.check(kind)
        if kind in ("array", "map"):
            # A map's items have names, which take bytes.
            if self.check(schema["items" if kind == "array" else "values"]) and kind == "array":
                raise KafkaConfigurationError(
                    f"{self._name}: the items of an array take no bytes, so a value could claim any number"
                )
            return False
        if kind in ("record", "error"):
            return self._record(schema)
        if "name" in schema:
            self._named[schema["name"]] = schema
        return kind == "null" or (kind == "fixed" and self._size(schema) == 0)

    def _size(self, schema: Mapping[str, Any]) -> int:
        size = schema["size"]
        if not isinstance(size, int) or size < 0:
            raise KafkaConfigurationError(
                f"{self._name}: {schema['name']} is fixed, and its size is {size!r}"
            )
        return size

    def _record(self, schema: Mapping[str, Any]) -> bool:
        name = schema["name"]
        self._named[name] = schema
        self._open.add(name)
        are_empty = [self.check(field["type"]) for field in schema["fields"]]
        self._open.discard(name)
        return all(are_empty)


def arrow_type(schema: Any) -> pa.StructType:
    """Return the Arrow struct of a record's fields.

    Enums and uuids are strings, times of day are microseconds since midnight, timestamps are in UTC unless
    they are local. The only union is ``["null", X]``, a nullable field.

    Raises:
        KafkaConfigurationError: a field has an unsupported type, such as another union.
    """
    return _Types().of(schema, "$")


class _Types:
    """Converts one schema; keeps the named types that it has passed."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, path: str) -> Any:
        """Return the type of the schema at a path."""
        if isinstance(schema, list):
            rest = [branch for branch in schema if branch != "null"]
            if len(rest) != 1:
                raise KafkaConfigurationError(
                    f"{path} is a union of {len(rest)} types, which is not supported"
                )
            return self.of(rest[0], path)
        if isinstance(schema, str):
            return self._by_name(schema, path)
        return self._of_definition(schema, schema["type"], path)

    def _of_definition(self, schema: Mapping[str, Any], kind: Any, path: str) -> Any:
        import pyarrow as pa

        if not isinstance(kind, str):
            return self.of(kind, path)
        if "name" in schema:
            self._named[schema["name"]] = schema
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "array":
            return pa.list_(self.of(schema["items"], f"{path}[]"))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{path}.*"))
        return _logical(schema, path) or self._by_name(kind, path)

    def _record(self, schema: Mapping[str, Any], path: str) -> pa.StructType:
        import pyarrow as pa

        names = [field["name"] for field in schema["fields"]]
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise KafkaConfigurationError(f"{path} is a record whose fields are {names}: each needs a name")
        return pa.struct(
            [(field["name"], self.of(field["type"], f"{path}.{field['name']}")) for field in schema["fields"]]
        )

    def _by_name(self, name: str, path: str) -> Any:
        import pyarrow as pa

        if name in self._named and name not in _PLAIN:
            return self.of(self._named[name], path)
        if name not in _PLAIN:
            raise KafkaConfigurationError(f"{path} is of type {name!r}, which is not supported")
        return getattr(pa, _PLAIN[name])()


_PLAIN = {
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}


MOST_DIGITS = 38
"""The most digits of a decimal in Spark and in tables."""


def _logical(schema: Mapping[str, Any], path: str) -> Any:
    import pyarrow as pa

    logical_type = schema.get("logicalType", "")
    if logical_type == "decimal":
        digits = schema.get("precision")
        if not isinstance(digits, int) or digits > MOST_DIGITS:
            raise KafkaConfigurationError(
                f"{path} is a decimal of {digits} digits, and columns have up to {MOST_DIGITS}"
            )
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if not isinstance(logical_type, str):
        raise KafkaConfigurationError(f"{path} has logicalType {logical_type!r}, which is not a string")
    return {
        "date": pa.date32(),
        "timestamp-millis": pa.timestamp("us", tz="UTC"),
        "timestamp-micros": pa.timestamp("us", tz="UTC"),
        "local-timestamp-millis": pa.timestamp("us"),
        "local-timestamp-micros": pa.timestamp("us"),
        "uuid": pa.string(),
        "time-millis": pa.int64(),
        "time-micros": pa.int64(),
    }.get(logical_type)
