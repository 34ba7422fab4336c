"""A checkpoint that has been used, and outputs that are new; no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.checkpoint_files import DONE, batches_in
from splashdam.pipeline.jobs.continuing import (
    is_used,
    need_table,
    need_tables_with_rows,
    note_empty,
    noted,
)
from splashdam.pipeline.jobs.decode import need_decoded
from splashdam.pipeline.jobs.outputs import TableOutput, TopicOutput
from splashdam.pipeline.jobs.window import need_windows
from splashdam.pipeline.plans.checkpoints import progress_in
from splashdam.pipeline.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = pa.schema([("a", pa.int64())])


@attrs.define
class Made(TableOutput):
    """A table that is made by its first batch, and gets no rows; the driver may die behind that."""

    dies: bool = False

    def write(self, rows: DataFrame, query: str, batch: int) -> None:
        open_table(self.table_format, self.place, schema=SCHEMA).close()
        if self.dies:
            raise ZeroDivisionError


def used(folder: Path) -> str:
    """A checkpoint with a committed micro-batch."""
    (folder / "commits").mkdir(parents=True)
    (folder / "commits/0").write_text("v1")
    return str(folder)


def table(tmp_path: Path, name: str, kind: Any = TableOutput) -> Any:
    return kind("parquet", str(tmp_path / name))


def write(output: Any) -> None:
    output.write(None, "q", 0)


def test_a_new_table_began_in_the_middle_of_a_query(tmp_path: Path) -> None:
    """The run wrote no record, said nothing, and all until then was missing."""
    new, checkpoint = table(tmp_path, "new"), used(tmp_path / "ckpt")
    with pytest.raises(
        KafkaConfigurationError, match=f"{checkpoint} is of a query.*no table {tmp_path}/new: a"
    ):
        need_table(checkpoint, new)
    assert not (tmp_path / "new").exists()
    write(table(tmp_path, "new", Made))
    need_table(checkpoint, new)


def test_a_query_that_died_before_its_first_commit_begins_again(tmp_path: Path) -> None:
    """Nothing is committed: a planned batch is repeated, whatever was written of it."""
    (tmp_path / "ckpt/offsets").mkdir(parents=True)
    (tmp_path / "ckpt/offsets/0").write_text("v1")
    (tmp_path / "ckpt/commits").mkdir()
    (tmp_path / "ckpt/commits/.0.crc").write_text("")
    for checkpoint in (str(tmp_path / "ckpt"), str(tmp_path / "none"), "s3://bucket/ckpt"):
        assert not is_used(checkpoint)
        need_table(checkpoint, table(tmp_path, "new"))
        need_decoded(checkpoint, table(tmp_path, "new"), table(tmp_path, "bad"))
        need_windows(checkpoint, table(tmp_path, "new"), table(tmp_path, "late"))


def test_a_plan_and_its_job_read_a_checkpoint_each_in_a_way_of_its_own(tmp_path: Path) -> None:
    """Both take the same names for micro-batches: neither checksums, nor what else is numbered in part."""
    checkpoint = used(tmp_path / "ckpt")
    for name in (".1.crc", "2.tmp", "٣", "x"):
        (tmp_path / "ckpt/commits" / name).write_text("")
    assert batches_in(checkpoint, DONE) == {0}
    assert is_used(checkpoint)
    assert progress_in(checkpoint).done == 0


def test_a_table_that_had_no_rows_yet_may_be_missing(tmp_path: Path) -> None:
    """Dead letters and late rows may never come; one with rows is named when another is given."""
    checkpoint, good, bad = used(tmp_path / "ckpt"), table(tmp_path, "good", Made), table(tmp_path, "bad")
    write(noted(good, checkpoint, "decoded"))
    need_decoded(checkpoint, good, bad)
    need_decoded(checkpoint, good, table(tmp_path, "bad2"))
    need_decoded(checkpoint, TopicOutput("t", {}), bad)
    with pytest.raises(
        KafkaConfigurationError, match=f"no table .*/good2: .* now, which are in {good.place}. G"
    ):
        need_decoded(checkpoint, table(tmp_path, "good2"), bad)


def test_a_decoder_s_checkpoint_without_its_tables_is_another_query_s(tmp_path: Path) -> None:
    """Every row goes to one of the two. A topic does not tell, nor does a checkpoint without notes."""
    checkpoint, good, bad = used(tmp_path / "ckpt"), table(tmp_path, "good"), table(tmp_path, "bad")
    with pytest.raises(KafkaConfigurationError, match=r"there is no table .*/good"):
        need_decoded(checkpoint, good, bad)
    need_decoded(checkpoint, TopicOutput("t", {}), bad)
    write(table(tmp_path, "good", Made))
    need_decoded(checkpoint, good, bad)


def test_a_decoder_that_met_no_rows_was_called_another_query(tmp_path: Path) -> None:
    """Its first micro-batches had none, as where transactions were aborted: both tables may be missing."""
    checkpoint = used(tmp_path / "ckpt")
    note_empty(checkpoint)
    need_decoded(checkpoint, table(tmp_path, "good"), table(tmp_path, "bad"))


def test_windows_that_are_all_open_are_in_no_table(tmp_path: Path) -> None:
    """But they are kept beside the checkpoint; otherwise it is another query's."""
    checkpoint, closed, late = used(tmp_path / "ckpt"), table(tmp_path, "hours"), table(tmp_path, "late")
    with pytest.raises(KafkaConfigurationError, match="keeps no windows"):
        need_windows(checkpoint, closed, late)
    (tmp_path / "ckpt/splashdam-window").mkdir()
    (tmp_path / "ckpt/splashdam-window/0.json").write_text("{}")
    need_windows(checkpoint, closed, late)


def test_a_note_is_written_behind_the_rows(tmp_path: Path) -> None:
    """A crash before it repeats the batch. In object storage nobody could read it."""
    checkpoint, dying = used(tmp_path / "ckpt"), Made("parquet", str(tmp_path / "t"), dies=True)
    with pytest.raises(ZeroDivisionError):
        write(noted(dying, checkpoint, "x"))
    assert not (tmp_path / "ckpt/splashdam-outputs").exists()
    for _ in range(2):
        write(noted(table(tmp_path, "t", Made), checkpoint, "x"))
    assert [(each.name, each.read_text()) for each in (tmp_path / "ckpt/splashdam-outputs").iterdir()] == [
        ("x", f"{tmp_path}/t")
    ]
    need_tables_with_rows(checkpoint, {"x": table(tmp_path, "t"), "y": table(tmp_path, "other")})
    assert noted(dying, "s3://bucket/ckpt", "x") is dying
    assert not noted(dying, checkpoint, "x").takes_records
