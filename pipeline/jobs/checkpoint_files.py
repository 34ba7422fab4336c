"""The files of a query's checkpoint, as Spark writes them.

It has ``offsets/N`` for each micro-batch that was planned, with the ends of its sources, and ``commits/N``
for each that is done. Only a checkpoint on a disk is looked into: the settings by which Spark reaches one in
object storage are Spark's alone.
"""

from __future__ import annotations

from splashdam.pipeline.tables.locations import Location

PLANNED, DONE = "offsets", "commits"


def names_in(checkpoint: str, folder: str) -> set[str]:
    """Return the names in one of a checkpoint's folders; none if only Spark can see them."""
    place = Location.of(checkpoint)
    return set(Location(f"{place.uri}/{folder}").entries()) if place.is_local else set()


def batches_in(checkpoint: str, folder: str) -> set[int]:
    """Return the numbers of the micro-batches in ``PLANNED`` or ``DONE``; none if only Spark can see them."""
    return {int(name) for name in names_in(checkpoint, folder) if name.isascii() and name.isdigit()}
