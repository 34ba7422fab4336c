"""Whether a folder takes new files, found out without leaving one there."""

from __future__ import annotations

import tempfile
from pathlib import Path


def no_new_file_in(folder: Path) -> str:
    """Return why no file can be made in a folder, "" if one can.

    Permissions alone do not tell: a folder of ``/proc`` takes no file, whoever asks.
    """
    try:
        # On Linux mostly a file without a name; elsewhere one that readers of tables skip.
        with tempfile.TemporaryFile(dir=folder, prefix="."):
            return ""
    except OSError as error:
        return f"{folder} takes no new file ({error.strerror or type(error).__name__})"
