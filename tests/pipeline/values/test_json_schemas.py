"""JSON Schema as columns: what is understood, and that nothing else is passed over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.schema_files import json_format


def test_types() -> None:
    """Each type, required or not, with null or without."""
    form = json_format(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": False,
            "required": ["id", "maybe"],
            "properties": {
                "id": {"type": "integer", "description": "which"},
                "maybe": {"type": ["null", "string"]},
                "small": {"type": "integer", "format": "int32"},
                "at": {"type": "string", "format": "date-time"},
                "day": {"type": "string", "format": "date"},
                "raw": {"type": "string", "contentEncoding": "base64"},
                "rate": {"type": "number"},
                "on": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "counts": {"type": "object", "additionalProperties": {"type": "number", "format": "float"}},
                "in": {"type": "object", "properties": {"x": {"type": "integer"}}},
            },
        }
    )
    assert form.refuses_unknown
    assert form.fields == pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("maybe", pa.string()),
            ("small", pa.int32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("rate", pa.float64()),
            ("on", pa.bool_()),
            ("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            ("counts", pa.map_(pa.string(), pa.float32())),
            ("in", pa.struct([("x", pa.int64())])),
        ]
    )


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"type": "integer", "minimum": 1}, "has 'minimum'"),
        ({"$ref": "#/x"}, "has type None"),
        ({"type": ["string", "integer"]}, "has type"),
        ({"type": "string", "format": "email"}, "format 'email'"),
        ({"type": "array"}, "is not an object"),
        ({"type": {}}, "has type"),
        ({"type": "string", "format": []}, "format"),
        ({"type": "object", "properties": [1]}, "needs properties"),
        ({"type": "object", "properties": {"x": {"type": "string"}}, "required": True}, "not a list of"),
        ({"type": "object", "properties": {"x": {"type": "string"}}, "required": "x"}, "not a list of"),
        (
            {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": 5},
            "additionalProperties 5",
        ),
        ({"type": "object"}, "needs properties"),
        ({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["y"]}, "requires 'y'"),
    ],
)
def test_keywords_that_are_not_checked_are_refused(field: dict[str, Any], said: str) -> None:
    """By name: a demand that nobody looks at would be a promise broken."""
    with pytest.raises(KafkaConfigurationError, match=r"\$\.a.*") as refused:
        json_format({"type": "object", "properties": {"a": field}})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ],
)
def test_values_are_objects(schema: dict[str, Any]) -> None:
    """With fields that are named: they become columns."""
    with pytest.raises(KafkaConfigurationError, match="properties"):
        json_format(schema)
