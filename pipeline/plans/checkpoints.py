"""The progress of a query, read from its checkpoint.

A micro-batch that was planned and is not done is repeated with the same ends of its sources.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.checkpoint_files import DONE, PLANNED, batches_in
from splashdam.pipeline.plans.plan import Entry, counted
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.surroundings import check_around, is_hidden
from splashdam.storage.files.new_files import no_new_file_in


@attrs.frozen
class Progress:
    """How far a query is.

    Attributes:
        place: of the checkpoint, as it was given.
        done: number of the last micro-batch that is done, -1 before the first.
        repeated: number of a micro-batch that was planned and is not done; None if there is none.
        begin: end offsets of the last batch that is done, as its source wrote them; None before the first.
        until: end offsets of the batch that is repeated; None if there is none.
        is_unseen: the checkpoint is where only Spark's own filesystems lead, so nothing is known.
    """

    place: str
    done: int = -1
    repeated: int | None = None
    begin: dict[str, Any] | None = None
    until: dict[str, Any] | None = None
    is_unseen: bool = False

    @property
    def entry(self) -> Entry:
        """The line of a plan."""
        if self.is_unseen:
            return Entry(
                f"checkpoint {self.place}: not looked into from here",
                ["whether it has been used, and with these tables, is not checked: only Spark reads it"],
            )
        if self.done < 0 and self.repeated is None:
            return Entry(f"checkpoint {self.place}: new")
        text = f"checkpoint {self.place}: {counted(self.done + 1, 'micro-batch', 'micro-batches')} done"
        if self.repeated is not None:
            text += f", number {self.repeated} was begun and is repeated with the same records"
        return Entry(text)


def progress_in(checkpoint: str, *, apart_from: tuple[str, ...] = ()) -> Progress:
    """Return the progress in a checkpoint, after checking that Spark can use it.

    Args:
        checkpoint: a folder, or a URI.
        apart_from: tables of the same pipeline, which need folders of their own.

    Raises:
        KafkaConfigurationError: it cannot be a folder, cannot be written to, shares a folder with a table,
            is in another table or in a broker's data directory, or is not that of a query with one source.
    """
    folder = Location.of(checkpoint)
    for table in apart_from:
        at = Location.of(table)
        if folder.overlaps(at) and not is_hidden(folder.path_below(at) or ""):
            raise KafkaConfigurationError(
                f"checkpoint {checkpoint} and table {table} are one folder, or one inside the other. "
                "Give each a folder of its own; in a table the checkpoint's name begins with '_': "
                f"{at.uri}/_checkpoint"
            )
    if not folder.is_local:
        return Progress(checkpoint, is_unseen=True)
    need_folder(folder, "the checkpoint")
    check_around(folder, f"checkpoint {checkpoint}")
    planned, done = batches_in(checkpoint, PLANNED), batches_in(checkpoint, DONE)
    last_done = max(done, default=-1)
    repeated = max((number for number in planned if number > last_done), default=None)
    return Progress(
        checkpoint,
        done=last_done,
        repeated=repeated,
        begin=_ends(folder, last_done) if last_done in planned else None,
        until=None if repeated is None else _ends(folder, repeated),
    )


def need_folder(place: Location, what: str) -> None:
    """Check that a local folder is there or can be made, and can be written to.

    Raises:
        KafkaConfigurationError: it cannot.
    """
    for path in (Path(place.uri), *Path(place.uri).parents):
        if path.is_dir():
            if obstacle := no_new_file_in(path):
                raise KafkaConfigurationError(f"{place.uri} cannot be {what}: {obstacle}")
            return
        if path.exists() or path.is_symlink():
            raise KafkaConfigurationError(f"{place.uri} cannot be {what}: {path} is not a folder")


def _ends(folder: Location, batch: int) -> dict[str, Any]:
    """Return the source's ends in ``offsets/N``: a version, the query's settings, a line for each source."""
    path = f"{folder.uri}/{PLANNED}/{batch}"
    lines = folder.read_bytes(f"{PLANNED}/{batch}").decode("utf-8", "replace").splitlines()
    try:
        version, _settings, source = lines
        found = json.loads(source)
    except ValueError:
        version, found = "", None
    if version != "v1" or not isinstance(found, dict):
        raise KafkaConfigurationError(
            f"{path} is not of a query with one source: the checkpoint belongs to something else"
        )
    return found
