"""How a cleaned copy takes the place of its sources, so that a crash leaves all of the old or all of the new.

``….cleaned`` files are whole and synced; renamed ``….swap``, they count. From then on the log works with
them. What is left then (the sources ``….deleted``, the copy under its final name) can be tried again as often
as the disk refuses it; the next start would finish it, too (``recovery/leftovers.py``). Sources go in
the order of their offsets: a tombstone must not go before what it deletes.
"""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.storage.files.disk import Files
from splashdam.storage.log_flush import LogFlusher
from splashdam.storage.recovery.leftovers import SWAP
from splashdam.storage.segment import LogSegment
from splashdam.storage.segment_list import SegmentList
from splashdam.storage.segment_removal import SegmentRemover


class SegmentSwapper:
    """Swaps segments of one log."""

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: SegmentList,
        remover: SegmentRemover,
        flusher: LogFlusher,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._remover = remover
        self._flusher = flusher
        self._unfinished: LogSegment | None = None  # works under its .swap names
        self._given_up: LogSegment | None = None  # never came to count; its files must go

    @property
    def is_unfinished(self) -> bool:
        """Whether ``finish`` has something to do."""
        return self._unfinished is not None or self._given_up is not None

    def swap_in(self, sources: Sequence[LogSegment], cleaned: LogSegment, due_ms: float) -> None:
        """Puts ``cleaned``, complete and synced, into the place of ``sources``.

        Args:
            sources: neighbours in the log, closed and flushed; the first has the base offset of ``cleaned``.
            cleaned: under its ``.cleaned`` names. Nothing may be left of an earlier swap (``finish``).
            due_ms: when the files of the sources may be unlinked, on the clock of ``SegmentRemover``.

        Raises:
            KafkaStorageError: the disk refuses. Either the sources are still in place, or ``cleaned`` is, and
                ``is_unfinished`` says that something is left to do.
        """
        self._remover.on_work()  # should the disk refuse, the rest is to be done later
        self._given_up = cleaned
        cleaned.move_to(SWAP)
        self._files.sync_directory(self._directory)
        self._given_up, self._unfinished = None, cleaned
        self._segments.replace(sources, cleaned)
        self._flusher.forget(sources)
        sources[0].discard()  # its files are replaced by those of the same name
        self._remover.add(sources[1:], due_ms)
        self._finish_last()

    def finish(self) -> None:
        """Does what the disk refused earlier.

        Raises:
            KafkaStorageError: it still does.
        """
        self._finish_last()
        if self._given_up is not None:
            self._given_up.discard()
            # Last of all the .log: without its indexes it is whole, they alone would be another's.
            for path in reversed(self._given_up.paths()):
                self._files.unlink(path)
            self._given_up = None

    def _finish_last(self) -> None:
        if self._unfinished is None:
            return
        self._remover.rename_all()
        self._unfinished.move_to("")
        self._files.sync_directory(self._directory)
        self._unfinished = None
