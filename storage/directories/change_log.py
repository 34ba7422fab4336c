"""An append-only file of changes to a JSON file: one line for each change, synced before it counts.

The JSON file is replaced atomically, and both files name a generation. Changes of another generation are in
the JSON file already, or were given up, and do not count. So replacing the JSON file by one of the next
generation makes all changes void in one step, whether or not the removal of this file lasts. Writing the JSON
file for each topic was the largest cost of creating hundreds. Format: docs/format/log-directory.md.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.record.checksum import crc32c
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import LogFile, unusable_file_error

_logger = logging.getLogger(__name__)


class ChangeLog:
    """The changes to one generation of a JSON file.

    Args:
        files: the file system.
        path: path of the file, whose directory exists. The first change creates it.

    Attributes:
        length: the number of changes.
        must_rewrite: a failure left the file in an unknown state, so the JSON file has to be replaced, by the
            next generation, before another change can be written.
    """

    def __init__(self, files: Files, path: str) -> None:
        self.length = 0
        self.must_rewrite = False
        self._files = files
        self._path = path
        self._file: LogFile | None = None
        self._generation = 0
        self._last = (0, 0)  # position and number of the changes of the last ``append``

    def begin(self, generation: int) -> None:
        """Begin a generation, without changes."""
        self.close()
        self.length, self.must_rewrite, self._generation = 0, False, generation
        self._last = (0, 0)

    def read(self, generation: int) -> list[Any]:
        """Return the changes of a generation, in order.

        A torn last line is ignored: it was never synced, so its change was never reported as done.

        Raises:
            KafkaStorageError: the file cannot be read or understood.
        """
        self.begin(generation)
        lines = (self._files.read_bytes(self._path) or b"").split(b"\n")
        values: list[Any] = []
        for number, line in enumerate(lines, 1):
            try:
                values.append(_value(line))
            except ValueError as error:
                if number < len(lines) - 1:
                    raise unusable_file_error(self._path, f"is damaged in line {number} ({error})") from error
                if line:
                    _logger.warning("%s: ignoring its last line, which is torn (%s)", self._path, error)
                break
        if not values or values[0] != {"generation": generation}:
            return []
        self.length = len(values) - 1
        return values[1:]

    def append(self, *changes: object) -> None:
        """Write changes and sync them, with one sync for all.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self._last = (0, 0)
        lines = [_line(change) for change in changes]
        is_new = self._file is None
        try:
            if self._file is None:
                self._file = self._files.open_log(self._path, create=True)
                if self._file.end:
                    # What is in it belongs to an earlier generation.
                    self._file.truncate(0)
                self._file.append([_line({"generation": self._generation})])
            end = self._file.end
            self._file.append((b"".join(lines),))  # joined: pwritev takes 1,024 buffers at most
            try:
                self._file.sync_now()
                if is_new:
                    self._files.sync_directory(self._path.rpartition("/")[0])
            except KafkaStorageError:
                self._file.truncate(end)  # or a start after ``kill -9`` would read the refused changes
                raise
        except KafkaStorageError:
            self.must_rewrite = True
            raise
        self._last = (end, len(changes))
        self.length += len(changes)

    def take_back(self) -> None:
        """Cut off the changes of the last ``append``; this needs no room on a full disk.

        Raises:
            KafkaStorageError: the disk refuses even that, or there is nothing to take back.
        """
        (end, count), self._last = self._last, (0, 0)
        if self._file is None or not count:
            raise KafkaStorageError(f"{self._path} has no changes that could be taken back")
        try:
            self._file.truncate(end)
            self._file.sync_now()
        except KafkaStorageError:
            self.must_rewrite = True
            raise
        self.length -= count

    def remove(self) -> None:
        """Remove the file after its changes were written to the JSON file; if that fails, they do not count.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self.close()
        self._files.unlink(self._path)

    def close(self) -> None:
        """Close the file; everything in it is synced."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _value(line: bytes) -> Any:
    """Decode one line.

    Raises:
        ValueError: the line is damaged.
    """
    crc, _, text = line.partition(b" ")
    if len(crc) != 8 or int(crc, 16) != crc32c(text):
        raise ValueError("its checksum is wrong")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
