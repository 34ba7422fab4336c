"""Whether the checkpoint of a query and its tables belong together.

A query does not read again what its checkpoint has committed. A new table would silently lack all that, so it
is refused. `decode` and `window` make a table with its first rows. That an output has some is noted beside
the checkpoint, in ``splashdam-outputs/NAME``: a table without a note may be missing, for it lacks nothing.

Only checkpoints on a disk are looked into. Those in object storage are seen by Spark alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.checkpoint_files import DONE, batches_in, names_in
from splashdam.pipeline.jobs.outputs import Output, TableOutput, TopicOutput
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.opening import is_there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTES = "splashdam-outputs"
_EMPTY = "empty"


def is_used(checkpoint: str) -> bool:
    """Whether a query with this checkpoint has committed a micro-batch; False if only Spark can tell."""
    return bool(batches_in(checkpoint, DONE))


def need_table(checkpoint: str, table: TableOutput, *, rows_in: str = "") -> None:
    """Refuse a table that does not exist, if the query has committed micro-batches.

    Args:
        checkpoint: of the query.
        table: one that the job makes before the query's first commit.
        rows_in: where the rows of these micro-batches are, if that is known.

    Raises:
        KafkaConfigurationError: the table would lack their rows.
    """
    if not is_used(checkpoint) or _exists(table):
        return
    uri = Location.of(table.place).uri
    where = f", which are in {rows_in}" if rows_in not in ("", uri) else ""
    raise KafkaConfigurationError(
        f"checkpoint {checkpoint} is of a query that has run, and there is no table {uri}: a new one would "
        f"lack all rows until now{where}. Give another checkpoint, or the table that this one belongs to"
    )


def need_tables_with_rows(
    checkpoint: str, outputs: Mapping[str, Output], *, have_all_rows: bool = False
) -> None:
    """Refuse tables that do not exist, though the query has written rows to these outputs.

    Args:
        checkpoint: of the query.
        outputs: of the query, each by its name in `noted`.
        have_all_rows: whether each row goes to one of them. If none of them exists, and nothing is noted,
            the checkpoint is that of another query.

    Raises:
        KafkaConfigurationError: a table would lack rows.
    """
    if not is_used(checkpoint):
        return
    notes = names_in(checkpoint, NOTES) & outputs.keys()
    tables = {name: output for name, output in outputs.items() if isinstance(output, TableOutput)}
    for name in sorted(notes & tables.keys()):
        note = _folder(checkpoint) / NOTES / name
        need_table(checkpoint, tables[name], rows_in=note.read_text("utf-8"))
    are_all_tables = tables.keys() == outputs.keys()
    is_known = bool(names_in(checkpoint, NOTES))
    if have_all_rows and are_all_tables and not is_known and not any(map(_exists, tables.values())):
        need_table(checkpoint, next(iter(tables.values())))


def note_empty(checkpoint: str) -> None:
    """Note a micro-batch without rows, such as one of aborted transactions: no output may have any yet."""
    if Location.of(checkpoint).is_local:
        _write_note(_folder(checkpoint) / NOTES / _EMPTY, "")


def noted(output: Output, checkpoint: str, name: str) -> Output:
    """Return an output that is noted beside a query's checkpoint once it has rows.

    Args:
        output: of the query.
        checkpoint: of the query.
        name: of the note.
    """
    if not Location.of(checkpoint).is_local:
        return output
    return _NotedOutput(output, _folder(checkpoint) / NOTES / name)


@attrs.frozen
class _NotedOutput:
    """An output with its note. See ``Output``."""

    output: Output
    note: Path

    @property
    def takes_records(self) -> bool:
        return self.output.takes_records

    def write(self, rows: DataFrame, query: str, batch: int) -> None:
        """Write, then note it: after a crash in between, the batch is repeated."""
        self.output.write(rows, query, batch)
        _write_note(self.note, _address(self.output))


def _write_note(note: Path, text: str) -> None:
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        aside = note.with_name(f".{note.name}.new")
        aside.write_text(text, "utf-8")
        os.replace(aside, note)


def _address(output: Output) -> str:
    if isinstance(output, TableOutput):
        return Location.of(output.place).uri
    return f"topic {output.topic}" if isinstance(output, TopicOutput) else ""


def _exists(table: TableOutput) -> bool:
    return is_there(table.table_format, table.place, table.options)


def _folder(checkpoint: str) -> Path:
    return Path(Location.of(checkpoint).uri)
