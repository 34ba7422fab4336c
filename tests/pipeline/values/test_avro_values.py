"""Avro values: three framings, changed schemas, and bytes that are no Avro."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.avro import AvroFormat, Framing, arrow_type, fingerprint, parsed
from splashdam.pipeline.values.schema_files import read_format
from splashdam.pipeline.values.verdicts import ValueFormat

fastavro = pytest.importorskip("fastavro", reason="needs splashdam[avro]")

OLD = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
NEW = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
FORMAT = AvroFormat(json.dumps(NEW), Framing.CONFLUENT, {7: json.dumps(OLD), 8: json.dumps(NEW)})


def body(schema: Any, record: Any) -> bytes:
    """A record without anything around it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def decoded(form: ValueFormat, *values: bytes | None) -> tuple[list[Any], list[str | None]]:
    """Values and reasons."""
    found = form.open().decode(pa.array(values, pa.binary()))
    return found.values.to_pylist(), found.reasons.to_pylist()


def test_values_of_two_schemas() -> None:
    """An old record gets the new field's default; a tombstone is null and good."""
    old = b"\0\0\0\0\x07" + body(OLD, {"id": 1})
    new = b"\0\0\0\0\x08" + body(NEW, {"id": 2, "name": "x", "tags": ["a"]})
    values, reasons = decoded(pickle.loads(pickle.dumps(FORMAT)), old, new, None)
    assert values == [{"id": 1, "name": None, "tags": []}, {"id": 2, "name": "x", "tags": ["a"]}, None]
    assert reasons == [None, None, None]


def test_single_objects() -> None:
    """Begin with the fingerprint of the schema that wrote them."""
    mark = b"\xc3\x01" + fingerprint(parsed(json.dumps(OLD), "old"))
    values, reasons = decoded(
        AvroFormat(json.dumps(NEW), Framing.SINGLE_OBJECT, {0: json.dumps(OLD)}),
        mark + body(OLD, {"id": 1}),
        b"\xc3\x01" + b"\0" * 8,
        b"\xc3\x01",
    )
    assert values[0] == {"id": 1, "name": None, "tags": []}
    assert reasons == [None, "unknown_schema", "no_schema_id"]


def test_fingerprint_of_the_specification() -> None:
    """That of ``"int"``, from the Avro specification's own test data, in the order it has on the wire."""
    assert fingerprint("int") == (0x7275D51A3F395C8F).to_bytes(8, "little")


def test_reasons() -> None:
    """The errors for bytes that are no record."""
    good = body(NEW, {"id": 2, "name": "x", "tags": []})
    bad = {
        good[:-1]: "not_avro",
        good + b"\0": "trailing_bytes",
        good.replace(b"x", b"\xff"): "not_utf8",
        b"": "not_avro",
        b"\x02\x63": "not_avro",
    }
    bare = AvroFormat(json.dumps(NEW), Framing.BARE)
    assert decoded(bare, good, *bad)[1] == [None, *bad.values()]
    assert decoded(FORMAT, b"\0\0\0\0\x09" + good, good, b"\0")[1] == [
        "unknown_schema",
        "no_schema_id",
        "no_schema_id",
    ]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(-(2**63), 2**63 - 1), st.text())
def test_any_bytes(noise: list[bytes], number: int, name: str) -> None:
    """Bytes are a record or have a reason, and what was written is read."""
    record = {"id": number, "name": name, "tags": [name]}
    values, reasons = decoded(AvroFormat(json.dumps(NEW), Framing.BARE), *noise, body(NEW, record))
    assert values[-1] == record
    assert all((value is None) == (reason is not None) for value, reason in zip(values, reasons, strict=True))


LOGICAL = {
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        decimal.Decimal("12.34"),
    ),
    "day": ({"type": "int", "logicalType": "date"}, datetime.date(2026, 1, 2)),
    "at": (
        {"type": "long", "logicalType": "timestamp-millis"},
        datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
    ),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime.datetime(2026, 1, 2, 3)),
    "who": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=5)),
    "kind": ({"type": "enum", "name": "kind", "symbols": ["A", "B"]}, "B"),
    "again": (["null", "kind"], "A"),
    "two": ({"type": "fixed", "name": "two", "size": 2}, b"ab"),
    "counts": ({"type": "map", "values": "int"}, {"a": 1}),
    "in": ({"type": "record", "name": "inner", "fields": [{"name": "x", "type": "float"}]}, {"x": 0.5}),
    "time": ({"type": "int", "logicalType": "time-millis"}, datetime.time(23, 59, 1)),
}


def test_types() -> None:
    """Named types, logical ones and nested ones arrive as columns of their own kind."""
    schema = {
        "type": "record",
        "name": "all",
        "fields": [{"name": name, "type": kind} for name, (kind, _) in LOGICAL.items()],
    }
    record = {name: value for name, (_, value) in LOGICAL.items()}
    values, reasons = decoded(AvroFormat(json.dumps(schema), Framing.BARE), body(schema, record))
    assert reasons == [None]
    told = {**record, "who": str(record["who"]), "counts": [("a", 1)], "time": 86_341_000_000}
    assert values == [told]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "e", "fields": []}}, "take no bytes"),
        (["null", "r"], "r contains a r"),
        (["string", "int"], "union of 2 types"),
        ("nothing", "not an Avro schema"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "decimal of 39 digits"),
        ({"type": "bytes", "logicalType": "decimal"}, "decimal of None digits"),
        ({"type": "int", "logicalType": []}, "which is not a string"),
        ({"type": "fixed", "name": "f", "size": -1}, "its size is -1"),
        ({"type": "fixed", "name": "f", "size": "1"}, "its size is '1'"),
        ({"type": "record", "name": "e", "fields": []}, "each needs a name"),
    ],
)
def test_schemas_that_are_refused(kind: Any, said: str) -> None:
    """Types without a column type, and those that let a short value claim all memory or nest without end."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(KafkaConfigurationError, match=said):
        arrow_type(parsed(json.dumps(schema), "it"))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"type":"record","name":"r","fields":[{"name":5,"type":"int"}]}', "5", '"int"']
)
def test_files_that_are_no_schema_ended_in_tracebacks(text: str) -> None:
    """The tracebacks were those of json, fastavro and Arrow."""
    with pytest.raises(KafkaConfigurationError):
        arrow_type(parsed(text, "it"))


def test_a_type_that_is_not_supported_named_no_file(tmp_path: Path) -> None:
    """The file was read without an error, and later the text named a field alone. A writer may have it."""
    bad, good = tmp_path / "bad.avsc", tmp_path / "good.avsc"
    for file, kind in ((bad, ["int", "string"]), (good, "string")):
        file.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": kind}]}))
    with pytest.raises(KafkaConfigurationError, match=r"bad\.avsc: \$\.id is a union of 2 types"):
        read_format(bad)
    assert read_format(good, writers={1: bad}).type == pa.struct([("id", pa.string())])


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("int", b"\x80\x80\x80\x80\x80\x40"),
        ({"type": "map", "values": "int"}, b"\x02\x02k\x80\x80\x80\x80\x80\x40\x00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x10" + b"\x7f" * 8),
    ],
)
def test_value_larger_than_its_type_stopped_the_query(kind: Any, written: bytes) -> None:
    """fastavro reads it and Arrow refuses it: a reason, and its neighbours are good."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    form = AvroFormat(json.dumps(schema), Framing.BARE)
    values, reasons = decoded(form, b"\x00", written, b"\x00", b"", None)
    assert reasons == [None, "out_of_range", None, "not_avro", None]
    assert values[0] == values[2] is not None


def test_files(tmp_path: Path) -> None:
    """The schema and those of the ids are files."""
    file, old = tmp_path / "r.avsc", tmp_path / "old.avsc"
    file.write_text(json.dumps(NEW))
    old.write_text(json.dumps(OLD))
    form = read_format(file, writers={7: old})
    assert decoded(form, b"\0\0\0\0\x07" + body(OLD, {"id": 1}))[1] == [None]
    with pytest.raises(KafkaConfigurationError, match="cannot read"):
        read_format(tmp_path / "gone.avsc")
    plain = tmp_path / "r.json"
    plain.write_text('{"type": "object", "properties": {"a": {"type": "string"}}}')
    assert read_format(plain).type == pa.struct([("a", pa.string())])
    with pytest.raises(KafkaConfigurationError, match=r"not an \.avsc"):
        read_format(plain, writers={7: old})
