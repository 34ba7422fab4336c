"""Which data directories a broker has filled so far, so that none is left out by mistake.

Without that a broker started without one of its ``log.dirs`` would make the partitions in it anew, empty, and
the next start with it would find them twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.directories.identity import META_NAME
from splashdam.storage.directories.scan import find_partitions
from splashdam.storage.files.disk import Files

KNOWN_NAME = "splashdam-log-dirs"


def check_none_is_left_out(files: Files, home: str, roots: Sequence[str]) -> None:
    """Compares the directories of this start with those of the one before, and notes them.

    Args:
        files: the file system.
        home: absolute path of the broker's home.
        roots: absolute paths of all directories of this start.

    Raises:
        KafkaStorageError: one with partitions is not among them.
    """
    path = f"{home}/{KNOWN_NAME}"
    data = files.read_bytes(path) or b""
    for line in data.decode(errors="replace").splitlines():
        root = os.path.normpath(os.path.join(home, line))
        if root not in roots and _holds_partitions(files, root, roots):
            raise KafkaStorageError(
                f"{root} holds partitions of this broker and is not among its log.dirs; name it there, or "
                "move it away if what is in it may be lost"
            )
    noted = "".join(f"{_relative(each, home)}\n" for each in roots if each != home).encode()
    if noted != data:
        files.write_atomic(path, noted)


def _holds_partitions(files: Files, root: str, roots: Sequence[str]) -> bool:
    is_ours = files.size_bytes(f"{root}/{META_NAME}") is not None
    return is_ours and bool(find_partitions(files, root, {}, roots=roots))


def _relative(root: str, home: str) -> str:
    """A directory below the home is found again when both have moved."""
    return os.path.relpath(root, home) if root.startswith(home + "/") else root
