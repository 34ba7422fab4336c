"""What an interrupted deletion or compaction left in a partition directory, and how it is finished.

A cleaner writes ``.cleaned`` files, renames them ``.swap`` once they are whole, deletes their sources, and
renames them to their final names. Before ``.swap`` the old state counts, from then on the new one.
"""

from __future__ import annotations

from splashdam.storage.directories.partition_metadata import FILE_NAME
from splashdam.storage.files.disk import Files
from splashdam.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from splashdam.storage.producers.snapshots import offset_of_name
from splashdam.storage.segments.batch_scan import iter_heads
from splashdam.storage.segments.segment import CLEANED, DELETED, LOG, SNAPSHOT, SWAP

TEMPORARY = ".tmp"


def finish_leftovers(files: Files, directory: str) -> tuple[list[str], bool]:
    """Brings a partition directory to the state before or after each interrupted operation.

    Returns:
        The names of the files that are there now, in order, and whether there was anything to do.

    Raises:
        KafkaStorageError: a file could not be read, renamed or removed.
    """
    names = _file_names(files, directory)
    if not any(name.endswith((DELETED, CLEANED, SWAP, TEMPORARY)) for name in names):
        return names, False
    for name in names:
        if name.endswith(DELETED) or _is_half_written(name):
            files.unlink(f"{directory}/{name}")
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    if cleaned:
        # A group is renamed from its last segment on, so swaps at or above a ``.cleaned`` are half a group.
        first_cleaned = min(offset_of_name(name, directory) for name in cleaned)
        broken = [name for name in swaps if offset_of_name(name, directory) >= first_cleaned]
        for name in cleaned + broken:
            files.unlink(f"{directory}/{name}")
        swaps = [name for name in swaps if name not in broken]
    if swaps:
        _finish_swaps(files, directory, names, swaps)
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        files.sync_directory(directory)
    return _file_names(files, directory), True


def _file_names(files: Files, directory: str) -> list[str]:
    return [entry.name for entry in files.list_directory(directory) if not entry.is_directory]


def _is_half_written(name: str) -> bool:
    """Whether a replacement of one of a partition's small files was interrupted; other names are not ours."""
    whole = name.removesuffix(TEMPORARY)
    return whole != name and (whole in (FILE_NAME, EPOCHS_NAME) or whole.endswith(SNAPSHOT))


def _finish_swaps(files: Files, directory: str, names: list[str], swaps: list[str]) -> None:
    first = min(offset_of_name(name, directory) for name in swaps)
    logs = (name for name in swaps if name.endswith(LOG + SWAP))
    end = max((_next_offset(files, directory, name) for name in logs), default=first)
    for name in names:
        is_source = name.partition(".")[0].isdigit() and not name.endswith((SWAP, DELETED, CLEANED))
        if is_source and first <= offset_of_name(name, directory) < end:
            files.unlink(f"{directory}/{name}")
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _next_offset(files: Files, directory: str, name: str) -> int:
    log = files.open_log(f"{directory}/{name}")
    try:
        offset = offset_of_name(name, directory)
        for head in iter_heads(log, 0, log.end):
            offset = head.last_offset + 1
        return offset
    finally:
        log.close()
