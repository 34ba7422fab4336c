"""Formats of values from the files that people keep: DDL, JSON Schema, Avro."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.avro_schemas import parsed_file
from splashdam.pipeline.values.avro_values import AvroFormat, Framing
from splashdam.pipeline.values.json_schemas import json_format
from splashdam.pipeline.values.json_values import JsonFormat
from splashdam.pipeline.values.verdicts import ValueFormat


def read_format(
    path: Path,
    *,
    framing: Framing = Framing.CONFLUENT,
    writers: Mapping[int, Path] | None = None,
    refuses_unknown: bool = False,
) -> ValueFormat:
    """The format of values that a file describes: ``.avsc`` is Avro, the others are of JSON values.

    ``.json`` is a JSON Schema, and anything else a DDL, as ``id bigint NOT NULL, name string``, for which a
    Spark session must be running.

    Args:
        path: the file.
        framing: of Avro values.
        writers: schema files of Avro values by their ids in the registry.
        refuses_unknown: of JSON values, as ``JsonFormat`` has it.

    Raises:
        KafkaConfigurationError: the file cannot be read, or is not what its name says.
    """
    if path.suffix == ".avsc":
        texts = {number: _text(file) for number, file in (writers or {}).items()}
        form = AvroFormat(_text(path), framing, texts)
        for file in (path, *(writers or {}).values()):
            parsed_file(file)
        return form
    if writers:
        raise KafkaConfigurationError(f"schema ids belong to Avro, and {path} is no .avsc file")
    found = _json(path) if path.suffix == ".json" else ddl_format(_text(path))
    return JsonFormat(found.fields, refuses_unknown or found.refuses_unknown)


def ddl_format(ddl: str) -> JsonFormat:
    """JSON values with the columns of a DDL; ``NOT NULL`` says that a field is required.

    Raises:
        KafkaConfigurationError: Spark does not read it so.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise KafkaConfigurationError(f"{ddl.strip()!r} is no DDL of Spark's: {error}") from error
    if not isinstance(schema, StructType):
        raise KafkaConfigurationError(f"{ddl.strip()!r} names no columns: write NAME TYPE, NAME TYPE")
    return JsonFormat(pa.struct(list(to_arrow_schema(schema, timezone="UTC"))))


def _json(path: Path) -> JsonFormat:
    try:
        schema = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise KafkaConfigurationError(f"{path} is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise KafkaConfigurationError(f"{path} is no JSON Schema")
    return json_format(schema)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaConfigurationError(f"cannot read {path}: {error}") from error
