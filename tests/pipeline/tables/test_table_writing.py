"""How tasks write: rows by partition, files of a good size, nothing left of what failed."""

from __future__ import annotations

import errno
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.tables_kit import SCHEMA, rows

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables import writing as module
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.writing import Writing, hive_text, hive_value, split, write_files

TEXTS = st.one_of(st.none(), st.sampled_from(["a", "b", "", "ü/%="]))


@given(st.lists(st.tuples(TEXTS, st.one_of(st.none(), st.integers(0, 2))), max_size=30))
def test_every_row_goes_to_one_part(pairs: list[tuple[str | None, int | None]]) -> None:
    """Parts have one combination of values each, nulls included, and together all rows."""
    columns = {"a": [pair[0] for pair in pairs], "b": [pair[1] for pair in pairs], "row": range(len(pairs))}
    batch = pa.RecordBatch.from_pydict(
        columns, pa.schema({"a": pa.string(), "b": pa.int32(), "row": pa.int64()})
    )
    found: dict[tuple[str | None, ...], list[int]] = {}
    for values, part in split(batch, ("a", "b")):
        found[values] = part.column("row").to_pylist()
    if not pairs:
        return
    texts = [(a, None if b is None else str(b)) for a, b in pairs]
    assert found == {
        values: [row for row, other in enumerate(texts) if other == values] for values in dict.fromkeys(texts)
    }


@given(st.one_of(st.none(), st.text()))
def test_values_in_paths(value: str | None) -> None:
    """Whatever a value is, it is one part of a path, and can be read back."""
    assert "/" not in hive_text(value)
    assert hive_value(hive_text(value)) == value


def writing(folder: Path, *partition_by: str) -> Writing:
    """Files where they stay."""
    return Writing(Location.of(folder), SCHEMA, partition_by)


def test_dictionaries_are_for_repeated_values(tmp_path: Path) -> None:
    """Values and offsets are written as they are: a dictionary of what never repeats halved the speed."""
    (file,) = write_files(writing(tmp_path), [rows(range(100))])
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    plain = {chunk.path_in_schema for chunk in chunks if "RLE_DICTIONARY" not in chunk.encodings}
    assert plain == {"value", "offset", "timestamp"}


class FullDisk(io.BytesIO):
    """Has room for what begins a file."""

    def write(self, data: Any) -> int:
        if self.tell() >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message was that a file without an end has no footer."""
    monkeypatch.setattr(Location, "open_output", lambda *_: pa.PythonFile(FullDisk(), "w"))
    with pytest.raises(OSError, match="No space left on device"):
        list(write_files(writing(tmp_path), [rows(range(100))]))


def test_row_groups_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches become few row groups."""
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 4_000)
    batches = [rows(range(start, start + 10)) for start in range(0, 200, 10)]
    (file,) = write_files(writing(tmp_path), batches)
    footer = pq.read_metadata(tmp_path / file.path)
    assert (file.record_count, footer.num_rows) == (200, 200)
    assert 2 <= footer.num_row_groups < 10
    assert file.size_bytes == (tmp_path / file.path).stat().st_size


def test_large_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch begins another one."""
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(module, "FILE_BYTES", 1)
    files = list(write_files(writing(tmp_path), [rows(range(10)), rows(range(10, 20))]))
    assert [file.record_count for file in files] == [10, 10]


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more combinations than that the one that rested longest is closed."""
    monkeypatch.setattr(module, "MAX_OPEN_FILES", 2)
    batches = [rows([number], topic=topic) for number, topic in enumerate("abacab")]
    files = list(write_files(writing(tmp_path, "topic"), batches))
    assert [(dict(file.partition)["topic"], file.record_count) for file in files] == [
        ("b", 1),
        ("c", 1),
        ("a", 3),
        ("b", 1),
    ]


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_failed_write_leaves_no_file(tmp_path: Path, is_staged: bool) -> None:
    """Trap 20: rows that cannot be read on take the open files with them."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(range(10))
        raise OSError("the cluster is gone")

    how = Writing(Location.of(tmp_path), SCHEMA, ("topic",), is_staged=is_staged)
    with pytest.raises(OSError, match="the cluster is gone"):
        list(write_files(how, broken()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_statistics_are_those_of_delta(tmp_path: Path) -> None:
    """Times in milliseconds, the upper one rounded up; binary columns have numbers of nulls alone."""
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("value", pa.binary()), ("text", pa.string())])
    columns = {"at": [1_500, 3_500, None], "value": [b"a", None, None], "text": ["b", "x", "c"]}
    batch = pa.RecordBatch.from_pydict(columns, schema)
    (file,) = write_files(Writing(Location.of(tmp_path), schema), [batch])
    assert json.loads(file.statistics) == {
        "numRecords": 3,
        "minValues": {"at": "1970-01-01T00:00:00.001Z", "text": "b"},
        "maxValues": {"at": "1970-01-01T00:00:00.004Z", "text": "x"},
        "nullCount": {"at": 1, "value": 2, "text": 0},
    }


def test_a_location_travels(tmp_path: Path) -> None:
    """Trap 15: without the filesystem that was opened here, and without showing its keys."""
    place = Location.of(tmp_path / "table", {"s3.secret-access-key": "hidden"})
    assert place.exists("nothing") is False
    assert pickle.loads(pickle.dumps(place)) == place
    assert "hidden" not in repr(place)


@pytest.mark.parametrize("place", ["", "s3://", "memory://"])
def test_no_place(place: str) -> None:
    """A table is somewhere."""
    with pytest.raises(KafkaConfigurationError, match="names no table"):
        Location.of(place)


@pytest.mark.parametrize("place", ["/", "//", "file:///", "/.."])
def test_a_table_at_the_root_had_an_empty_path(place: str) -> None:
    """The slash at a path's end is removed, and here it is the whole path."""
    with pytest.raises(KafkaConfigurationError, match="is the root of the filesystem: give a folder in it"):
        Location.of(place)


def test_an_unknown_filesystem() -> None:
    """The scheme is named."""
    with pytest.raises(KafkaConfigurationError, match="gopher:// is not supported"):
        Location.of("gopher://there/table").exists("file")
