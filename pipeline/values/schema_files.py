"""The format of values from a schema file: Spark's DDL, JSON Schema or Avro.

Of JSON Schema, only fields and types are supported; other demands are refused instead of being left
unchecked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.avro import AvroFormat, Framing, arrow_type, parsed_file
from splashdam.pipeline.values.ddl import columns_of
from splashdam.pipeline.values.json_values import JsonFormat
from splashdam.pipeline.values.verdicts import ValueFormat

if TYPE_CHECKING:
    import pyarrow as pa


def read_format(
    path: Path,
    *,
    framing: Framing = Framing.CONFLUENT,
    writers: Mapping[int, Path] | None = None,
    refuses_unknown: bool = False,
) -> ValueFormat:
    """Return the format that a file describes: ``.avsc`` of Avro values, any other of JSON values.

    ``.json`` is a JSON Schema, anything else a DDL such as ``id bigint NOT NULL, name string``.

    Args:
        path: the file.
        framing: of Avro values.
        writers: writer schemas of Avro values by their ids in the registry.
        refuses_unknown: of JSON values, see `JsonFormat`.

    Raises:
        KafkaConfigurationError: the file cannot be read, its contents do not match its suffix, or it has a
            type that values are not decoded to.
    """
    if path.suffix == ".avsc":
        texts = {number: _text(file) for number, file in (writers or {}).items()}
        form = AvroFormat(_text(path), framing, texts)
        for file in (writers or {}).values():
            parsed_file(file)  # may have types that columns lack, if the reader's schema has others
        reader = parsed_file(path)
        with _named(path):
            arrow_type(reader)
        return form
    if writers:
        raise KafkaConfigurationError(f"schema ids are for Avro, and {path} is not an .avsc file")
    if path.suffix == ".json":
        schema = _json(path)
        with _named(path):
            found = json_format(schema)
    else:
        ddl = _text(path)
        with _named(path):
            found = ddl_format(ddl)
    return JsonFormat(found.fields, refuses_unknown or found.refuses_unknown)


def ddl_format(ddl: str) -> JsonFormat:
    """Return the format of JSON values with the columns of a DDL; ``NOT NULL`` makes a field required.

    Raises:
        KafkaConfigurationError: see `columns_of`.
    """
    return JsonFormat(columns_of(ddl))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in the errors of its contents."""
    try:
        yield
    except KafkaConfigurationError as error:
        raise KafkaConfigurationError(f"{path}: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KafkaConfigurationError(f"{path} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise KafkaConfigurationError(f"{path} is not a JSON Schema")
    return schema


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaConfigurationError(f"cannot read {path}: {error}") from error


_ANNOTATIONS = {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"}
"""Keywords that put no demand on a value."""
_STRUCT = {"type", "properties", "required", "additionalProperties"}
_WORDS = {
    "object": _STRUCT,
    "array": {"type", "items"},
    "string": {"type", "format", "contentEncoding"},
    "integer": {"type", "format"},
    "number": {"type", "format"},
    "boolean": {"type"},
}


def json_format(schema: Mapping[str, Any]) -> JsonFormat:
    """Return the format that a JSON Schema describes.

    Supported are objects with ``properties`` and ``required``, or with a schema for ``additionalProperties``
    (a map), arrays with ``items``, strings (``format`` ``date-time`` or ``date``, ``contentEncoding``
    ``base64``), integers of 64 bits (``format`` ``int32``: of 32), numbers (``format`` ``float``: of single
    precision), booleans, and ``["null", …]`` of one of them. A required field must not be null, unless its
    type says so. ``additionalProperties: false`` at the top refuses unknown fields at every depth.

    Raises:
        KafkaConfigurationError: the schema is not of an object, or has an unsupported keyword: nothing that
            it demands is left unchecked.
    """
    kind, is_optional = _type(schema, "$")
    import pyarrow as pa

    if is_optional or not pa.types.is_struct(kind):
        raise KafkaConfigurationError('the JSON Schema should say "type": "object" and its "properties"')
    return JsonFormat(kind, refuses_unknown=schema.get("additionalProperties") is False)


def _type(schema: Any, path: str) -> tuple[pa.DataType, bool]:
    """Return the Arrow type, and whether null is allowed."""
    if not isinstance(schema, Mapping):
        raise KafkaConfigurationError(f"{path} of the JSON Schema is not an object with a type")
    declared = schema.get("type")
    named = list(declared) if isinstance(declared, list) else [declared]
    kinds = [name for name in named if name != "null"]
    if len(kinds) != 1 or not isinstance(kinds[0], str) or kinds[0] not in _WORDS:
        raise KafkaConfigurationError(
            f'{path} of the JSON Schema has type {declared!r}; known are {", ".join(_WORDS)}, and ["null", …]'
        )
    unknown = sorted(set(schema) - _WORDS[kinds[0]] - _ANNOTATIONS)
    if unknown:
        raise KafkaConfigurationError(
            f"{path} of the JSON Schema has {unknown[0]!r}, which is not supported: remove it"
        )
    return _MAKERS[kinds[0]](schema, path), len(kinds) < len(named)


def _object(schema: Mapping[str, Any], path: str) -> pa.DataType:
    import pyarrow as pa

    properties, more = schema.get("properties"), schema.get("additionalProperties")
    if properties is None and isinstance(more, Mapping):
        return pa.map_(pa.string(), _type(more, f"{path}.*")[0])
    if not isinstance(properties, Mapping) or not properties or isinstance(more, Mapping):
        raise KafkaConfigurationError(
            f"{path} of the JSON Schema needs properties, or a schema for all of them"
        )
    if not isinstance(more, bool | None):
        raise KafkaConfigurationError(f"{path} of the JSON Schema has additionalProperties {more!r}")
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise KafkaConfigurationError(
            f"{path} of the JSON Schema requires {names!r}, which is not a list of names"
        )
    required = set(names)
    if not required <= set(properties):
        raise KafkaConfigurationError(
            f"{path} of the JSON Schema requires {min(required - set(properties))!r} without describing it"
        )
    fields = []
    for name, inner in properties.items():
        kind, may_be_null = _type(inner, f"{path}.{name}")
        fields.append(pa.field(name, kind, nullable=may_be_null or name not in required))
    return pa.struct(fields)


def _array(schema: Mapping[str, Any], path: str) -> pa.DataType:
    import pyarrow as pa

    kind, may_be_null = _type(schema.get("items"), f"{path}[]")
    return pa.list_(pa.field("element", kind, nullable=may_be_null))


def _string(schema: Mapping[str, Any], path: str) -> pa.DataType:
    import pyarrow as pa

    if "contentEncoding" in schema:
        return _one_of(schema, "contentEncoding", path, {"base64": pa.binary()})
    kinds = {None: pa.string(), "date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
    return _one_of(schema, "format", path, kinds)


def _integer(schema: Mapping[str, Any], path: str) -> pa.DataType:
    import pyarrow as pa

    return _one_of(schema, "format", path, {None: pa.int64(), "int64": pa.int64(), "int32": pa.int32()})


def _number(schema: Mapping[str, Any], path: str) -> pa.DataType:
    import pyarrow as pa

    return _one_of(
        schema, "format", path, {None: pa.float64(), "double": pa.float64(), "float": pa.float32()}
    )


def _boolean(_schema: Mapping[str, Any], _path: str) -> pa.DataType:
    import pyarrow as pa

    return pa.bool_()


def _one_of(schema: Mapping[str, Any], word: str, path: str, kinds: Mapping[str | None, Any]) -> pa.DataType:
    name = schema.get(word)
    if not isinstance(name, str | None) or name not in kinds:
        known = ", ".join(name for name in kinds if name)
        raise KafkaConfigurationError(f"{path} of the JSON Schema has {word} {name!r}; known are {known}")
    return kinds[name]


_MAKERS = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
