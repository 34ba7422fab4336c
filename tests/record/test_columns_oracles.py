"""What others wrote or read: every golden file on both twins, kafka-python's reader, pyarrow's arrays."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kafka.record.memory_records import MemoryRecords
from support.running.oracles import shared
from support.running.patches import perhaps

from splashdam.record import columns as columns_module
from splashdam.record import reader
from splashdam.record.batch import MAGIC, Codec
from splashdam.record.columns import ColumnsBuilder, RecordColumns, decode_columns
from splashdam.record.compression import Compression
from splashdam.record.reader import Record, iter_records, read_records, scan_batch
from splashdam.record.sealing import build_batch
from splashdam.record.stored import iter_stored_headers

PAGE = Path(__file__).resolve().parents[2] / "docs/decisions/columns.md"


COMMITTED = Path(__file__).resolve().parents[1] / "golden"


def logs_of(directory: Path) -> list[Path]:
    return sorted([*directory.rglob("*.log"), *directory.rglob("*.checkpoint")])


def use(twin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "ColumnBuffers", twin.ColumnBuffers)
    for name in ("decode_records", "scan_records"):
        monkeypatch.setattr(reader, name, perhaps(getattr(twin, name), because="a twin, no fault"))


def everything(data: bytes) -> dict[str, Any]:
    """What each of our readers makes of all batches."""
    headers = list(iter_stored_headers(data))
    starts = [position for position, _ in headers]
    builder = ColumnsBuilder()
    assert all(builder.add(data, start) for start in starts)
    columns = builder.finish()
    listed = [record for start in starts for record in read_records(data, start)]
    assert listed == [record for start in starts for record in iter_records(data, start)]
    assert listed == [columns.record(index) for index in range(len(columns))]
    assert columns.keys is not None
    assert columns.values is not None
    return {
        "records": listed,
        "scans": [scan_batch(data, start) for start, header in headers if header.magic == MAGIC],
        "buffers": [
            bytes(buffer)
            for buffer in (
                columns.offsets,
                columns.timestamps_ms,
                columns.keys.offsets,
                columns.keys.data,
                columns.keys.validity or b"",
                columns.values.offsets,
                columns.values.data,
                columns.values.validity or b"",
            )
        ],
    }


def kafka_pythons(data: bytes) -> list[Record]:
    """The records as kafka-python reads them."""
    found, batches = [], MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        found += [
            Record(
                each.offset,
                -1 if each.timestamp is None else each.timestamp,
                each.key,
                each.value,
                tuple(each.headers),
            )
            for each in batch
        ]
    return found


@pytest.mark.parametrize("beside", [False, True], ids=["committed", "shared"])
def test_golden_files(
    twins: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Both twins read the same from every file that a real Kafka wrote, and kafka-python agrees."""
    files = logs_of(shared("golden") if beside else COMMITTED)
    assert len(files) >= 9
    for file in files:
        data = file.read_bytes()
        found = []
        for twin in twins:
            use(twin, monkeypatch)
            found.append(everything(data))
        assert found[0] == found[1], file
        if all(header.magic == MAGIC for _, header in iter_stored_headers(data)):
            # For older formats see test_message_sets: kafka-python lacks a package for their lz4.
            assert found[0]["records"] == kafka_pythons(data), file


@pytest.mark.parametrize("name", ["format0-0", "format1-0", "format1appended-0"])
def test_ranges_of_older_formats(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Within wrappers too, and read on in small pieces."""
    use(kernel, monkeypatch)
    (file,) = COMMITTED.glob(f"*/{name}/*.log")
    data = file.read_bytes()
    listed = [record for start, _ in iter_stored_headers(data) for record in read_records(data, start)]
    for first, last in ((0, 10**6), (7, 7), (30, 90)):
        wanted = [record for record in listed if first <= record.offset <= last]
        found: list[Record] = []
        next_offset = first
        while len(some := decode_columns(data, first_offset=next_offset, last_offset=last, max_records=9)):
            found += [some.record(index) for index in range(len(some))]
            next_offset = some.next_offset
        assert found == wanted


def sample(seed: int) -> list[Any]:
    noise = random.Random(seed)
    return [
        (
            1_700_000_000_000 + noise.randrange(-500, 500),
            None if noise.random() < 0.3 else noise.randbytes(noise.randrange(40)),
            None if noise.random() < 0.1 else noise.randbytes(noise.randrange(300)),
            [("trace", noise.randbytes(8)), ("null", None), ("é", b"")][: noise.randrange(4)],
        )
        for _ in range(300)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_as_kafka_python_reads(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    """Random records, several batches."""
    use(kernel, monkeypatch)
    for seed in range(3):
        data = build_batch(sample(seed), Compression(codec))
        assert everything(data)["records"] == kafka_pythons(data)


def recipe() -> Any:
    """The function of the page that makes a ``pyarrow.RecordBatch`` of columns."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["record_batch"]


@pytest.mark.parametrize("nulls", [True, False])
def test_pyarrow_takes_them(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, nulls: bool) -> None:
    """By the recipe of the decision's page: valid arrays, the same values, not a byte copied."""
    pytest.importorskip("pyarrow")
    use(kernel, monkeypatch)
    records = [record for record in sample(5) if nulls or (record[1] is not None and record[2] is not None)]
    columns = decode_columns(build_batch(records))
    batch = recipe()(columns)
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert [row["offset"] for row in rows] == list(range(len(records)))
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [record[0] for record in records]
    assert [(row["key"], row["value"]) for row in rows] == [record[1:3] for record in records]
    headers = [[(pair["key"], pair["value"]) for pair in row["headers"]] for row in rows]
    assert headers == [record[3] for record in records]
    assert columns.values is not None
    assert batch.column("value").buffers()[2].address == address_of(columns.values.data)


def test_pyarrow_takes_none() -> None:
    """Columns without a record make arrays of length 0."""
    pytest.importorskip("pyarrow")
    empty: RecordColumns = decode_columns(b"")
    batch = recipe()(empty)
    batch.validate(full=True)
    assert batch.num_rows == 0


def address_of(buffer: memoryview) -> int:
    import pyarrow

    address: int = pyarrow.py_buffer(buffer).address
    return address
