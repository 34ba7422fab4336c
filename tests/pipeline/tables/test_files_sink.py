"""The sink that makes files of rows, and what a micro-batch does with them; no JVM."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.pipeline.tables_kit import new_table, offsets_of, rows, written

from splashdam.model.errors import IllegalStateError
from splashdam.pipeline.options import from_text, to_text
from splashdam.pipeline.tables.writing import FILES_SCHEMA, DataFile, files_from_rows, files_to_arrow

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.pipeline.tables.streaming import (
    HAND_OVER,
    WRITING,
    CommittedBatch,
    FilesSink,
    FilesWriter,
    MicroBatchError,
    append_batch,
)


def batch_rows(query: str | None) -> Any:
    """What ``foreachBatch`` is given, as far as it is looked at."""
    context = SimpleNamespace(getLocalProperty=lambda _: query)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


def test_messages_pickle(tmp_path: Path) -> None:
    """Trap 15: the writer, its table's place and its messages survive the way to the workers and back."""
    writing = new_table("parquet", tmp_path, partition_by=("date",)).writing()
    assert writing.location.filesystem is not None  # is not taken along
    assert from_text(to_text(writing)) == writing
    writer = pickle.loads(pickle.dumps(FilesWriter(writing, str(tmp_path / "files.json"))))
    message = pickle.loads(pickle.dumps(writer.write(iter([rows(range(3))]))))
    assert [file.record_count for file in message.files] == [3]


def test_files_of_attempts_that_won(tmp_path: Path) -> None:
    """Trap 20: another attempt writes another file; only what the messages name is handed over."""
    table = new_table("parquet", tmp_path)
    writer = FilesWriter(table.writing(), str(tmp_path / "files.json"))
    lost, won = (writer.write(iter([rows(range(3))])) for _ in range(2))
    writer.commit([won, None])
    named = [row[0] for row in json.loads((tmp_path / "files.json").read_text())]
    assert named == [file.path for file in won.files] != [file.path for file in lost.files]


def test_abort_after_commit(tmp_path: Path) -> None:
    """Trap 19: ``abort`` follows a ``commit`` that raised, with messages that may be missing; files stay."""
    table = new_table("parquet", tmp_path)
    writer = FilesWriter(table.writing(), str(tmp_path / "files.json"))
    message = writer.write(iter([rows(range(3))]))
    table.commit("q", 0, message.files)
    writer.abort([message, None])
    assert offsets_of(table) == [0, 1, 2]


def test_the_sink_reads_its_options(tmp_path: Path) -> None:
    """As Spark hands them over."""
    writing = new_table("parquet", tmp_path).writing()
    sink = FilesSink({WRITING: to_text(writing), HAND_OVER: "there"})
    assert sink.writer(None, overwrite=False) == FilesWriter(writing, "there")


def test_files_travel_as_rows() -> None:
    """A row for each, in the schema that Spark is told."""
    file = DataFile("a/b.parquet", 10, 3, (("date", "2020-01-01"), ("topic", None)), "{}")
    (batch,) = files_to_arrow([file])
    assert batch.schema.equals(FILES_SCHEMA)
    assert files_from_rows([tuple(row.values()) for row in batch.to_pylist()]) == [file]


def test_a_micro_batch_is_appended_once(tmp_path: Path) -> None:
    """Trap 19: what is replayed after the table's commit is not even written."""
    table = new_table("parquet", tmp_path)
    given = batch_rows("query")
    done = append_batch(given, 0, table, lambda _: written(table, rows(range(4))))
    assert done == CommittedBatch("query", 0, record_count=4, file_count=1)
    again = append_batch(given, 0, table, lambda _: pytest.fail("is written"))
    assert again == CommittedBatch("query", 0, was_there=True)
    with pytest.raises(IllegalStateError, match="foreachBatch"):
        append_batch(batch_rows(None), 1, table, lambda _: [])


def test_a_batch_that_another_driver_committed_meanwhile_was_counted(tmp_path: Path) -> None:
    """Its rows and files were reported as added, though they are orphans."""
    table = new_table("parquet", tmp_path)

    def write(_: object) -> list[DataFile]:
        table.commit("query", 0, written(table, rows(range(4))))
        return written(table, rows(range(4)))

    assert append_batch(batch_rows("query"), 0, table, write) == CommittedBatch("query", 0, was_there=True)
    assert append_batch(batch_rows("query"), 1, table, lambda _: []) == CommittedBatch("query", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("java.lang.Error: " + "x" * 100_000, "batch 0 could not be written"),
        ("calling o1.save. java.lang.InterruptedException" + "x" * 100_000, "java.lang.InterruptedException"),
    ],
)
def test_failures_have_a_short_message(tmp_path: Path, text: str, said: str) -> None:
    """Spark's search for an interrupt in the text of a failure overflowed the stack of the query's thread."""
    from py4j.protocol import Py4JError

    table = new_table("parquet", tmp_path)

    def fails(_: object) -> list[DataFile]:
        raise Py4JError(text)

    with pytest.raises(MicroBatchError, match=said) as raised:
        append_batch(batch_rows("query"), 0, table, fails)
    assert raised.value.__suppress_context__
    assert not table.is_committed("query", 0)
