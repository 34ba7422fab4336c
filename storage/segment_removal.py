"""How segments leave: out of the list, renamed ``….deleted``, and unlinked after ``file.delete.delay.ms``.

Whoever reads a slice of such a file owns a descriptor of it, or its bytes, and goes on reading. A disk that
refuses a step is asked again at the next turn; a crash between the steps is finished by the next start, which
unlinks every ``.deleted`` file at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from splashdam.storage.files.disk import Files
from splashdam.storage.producers.snapshots import snapshot_path
from splashdam.storage.segment import LogSegment

DELETED = ".deleted"


@attrs.define
class _Removal:
    """One file on its way out."""

    path: str
    due_ms: float
    is_renamed: bool = False


class SegmentRemover:
    """The files of one log that are on their way out, the oldest first.

    Args:
        files: the file system.
        directory: of the log.
        on_work: called when there will be something to do.
    """

    def __init__(self, files: Files, directory: str, on_work: Callable[[], None]) -> None:
        self.on_work = on_work
        self._files = files
        self._directory = directory
        self._removals: deque[_Removal] = deque()
        self._has_unsynced_names = False

    @property
    def next_due_ms(self) -> float:
        """When ``unlink_due`` has something to do, on the clock that ``add`` was told; infinity for never."""
        return self._removals[0].due_ms if self._removals else math.inf

    @property
    def keeps_names(self) -> bool:
        """Whether a start might find a file of a removed segment by its old name, and take it in."""
        return self._has_unsynced_names or any(not removal.is_renamed for removal in self._removals)

    def add(self, segments: Sequence[LogSegment], due_ms: float) -> None:
        """Takes segments that are out of the log's list, and renames their files.

        Args:
            segments: in the order of their offsets, so that a crash between two leaves no gap.
            due_ms: when their files may be unlinked.

        Raises:
            KafkaStorageError: a file could not be renamed for good; ``unlink_due`` tries again.
        """
        self.on_work()
        for segment in segments:
            segment.discard()
            for path in (*segment.paths(), snapshot_path(self._directory, segment.base_offset)):
                self._removals.append(_Removal(path, due_ms))
        self.rename_all()

    def unlink_due(self, now_ms: float) -> None:
        """Unlinks the files whose delay is over.

        Raises:
            KafkaStorageError: a file could not be renamed or unlinked; it stays in the queue.
        """
        self.rename_all()
        while self.next_due_ms <= now_ms:
            self._files.unlink(self._removals[0].path + DELETED)
            self._removals.popleft()

    def rename_all(self) -> None:
        """Renames what is not renamed yet, for good.

        Raises:
            KafkaStorageError: a file could not be renamed, or that would not last; a later call tries again.
        """
        for removal in self._removals:
            if not removal.is_renamed:
                if self._files.size_bytes(removal.path) is not None:
                    self._files.rename(removal.path, removal.path + DELETED)
                removal.is_renamed = self._has_unsynced_names = True
        if self._has_unsynced_names:
            self._files.sync_directory(self._directory)  # or a power cut would undo it
            self._has_unsynced_names = False
