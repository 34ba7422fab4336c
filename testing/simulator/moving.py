"""A partition's directory from one disk to another: what replication would have done by then."""

from __future__ import annotations

import os

from splashdam.storage.files.disk import Files


def move_directory(source: Files, old: str, target: Files, new: str) -> None:
    """Moves the files of one directory, which has none below it; when it returns the move is durable.

    Raises:
        KafkaStorageError: one of the disks refuses.
    """
    target.make_directory(new)
    for name, is_directory in source.list_directory(old):
        assert not is_directory, f"{old}/{name}"
        data = source.read_bytes(f"{old}/{name}")
        assert data is not None
        target.write_atomic(f"{new}/{name}", data)
        modified_ms = source.modified_ms(f"{old}/{name}")
        target.set_modified_ms(f"{new}/{name}", modified_ms or 0)
    target.sync_directory(os.path.dirname(new))
    source.remove_tree(old)
    source.sync_directory(os.path.dirname(old))
