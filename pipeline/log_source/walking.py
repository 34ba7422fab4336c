"""Walks along the batches of a segment, a large read at a time; distinguishes a torn tail from damage."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import NamedTuple

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.pipeline.log_source.filesystems import LogFile
from splashdam.pipeline.log_source.index_hints import OffsetHints, sound_batch_at
from splashdam.record.batch import HEADER_BYTES, BatchHeader
from splashdam.record.stored import header_is_there, parse_stored_header, stored_crc_ok
from splashdam.storage.inspect.read_only import LARGEST_BATCH_BYTES

READ_BYTES = 8 * 1024 * 1024
"""Size of one read: few requests to an object store, and little memory."""

_MAY_BEGIN = re.compile(rb"(?=\x00[\s\S]{15}\x02)")
"""Where a batch of format 2 with an offset below 2^56 may begin."""
_OVERLAP_BYTES = HEADER_BYTES


class Chunk(NamedTuple):
    """Contiguous whole batches.

    Attributes:
        position: of the first in its file.
        data: all batches.
        batches: where each begins in ``data``, and its header.
    """

    position: int
    data: memoryview
    batches: list[tuple[int, BatchHeader]]


class Damage(NamedTuple):
    """Bytes that are not a batch.

    Attributes:
        position: where they begin.
        size_bytes: up to the next batch, or to the end of the file.
        reason: why they are not a batch.
        is_tail: no batch follows them.
        is_zeros: they are all zero, as in a preallocated file.
        header: of a batch with wrong bytes; None if the header cannot be read.
    """

    position: int
    size_bytes: int
    reason: str
    is_tail: bool
    is_zeros: bool
    header: BatchHeader | None


class _Stop(NamedTuple):
    """Why the batches of one read end: the next needs a larger read, or is damaged, or there is none."""

    needed_bytes: int = 0
    problem: str | None = None


@attrs.frozen
class Walk:
    """A walk along one segment file.

    Attributes:
        file: the ``.log``.
        hints: positions where batches may continue after damage.
        check_crcs: whether a batch with a wrong checksum counts as damage.
        headers_only: except for control batches, ``Chunk.data`` need not hold batches as a whole.
        read_bytes: size of one read; a larger batch is read as a whole.
    """

    file: LogFile
    hints: OffsetHints
    check_crcs: bool = True
    headers_only: bool = False
    read_bytes: int = READ_BYTES

    def chunks(self, start: int, end: int, *, is_cut: bool = False) -> Iterator[Chunk | Damage]:
        """Yield the batches that begin in [``start``, ``end``), and the damage between them.

        Args:
            start: where a batch begins.
            end: where another batch begins, or the end of the file.
            is_cut: a batch was found at ``end``; otherwise the file ended there when it was listed.

        Raises:
            KafkaStorageError: the file cannot be read.
            CorruptMessageError: no batch begins at ``end``.
        """
        position, due, stop = start, 0, _Stop()
        while position < end:
            data = self.file.read(position, max(self.read_bytes, stop.needed_bytes))
            batches, at, stop = self._batches(position, data, end)
            if batches:
                due = batches[-1][1].next_offset
                yield Chunk(position, data[:at], batches)
            position += at
            if stop.problem is not None:
                damage = self._damage(position, end, stop.problem, due, is_cut=is_cut)
                yield damage
                position += damage.size_bytes
        if is_cut and position > end:
            raise CorruptMessageError(
                f"{self.file.name}: no batch begins at {end}, though its index says so; remove the index"
            )

    def _batches(
        self, position: int, data: memoryview, end: int
    ) -> tuple[list[tuple[int, BatchHeader]], int, _Stop]:
        """Return the whole batches in ``data``, where they end, and why."""
        batches: list[tuple[int, BatchHeader]] = []
        at, up_to, stop = 0, min(len(data), end - position), _Stop()
        while at < up_to:
            header = self._next(position, data, at)
            if isinstance(header, _Stop):
                stop = header
                break
            batches.append((at, header))
            at += header.size_bytes
        return batches, at, stop

    def _next(self, position: int, data: memoryview, at: int) -> BatchHeader | _Stop:
        if not header_is_there(data, at):
            is_all = position + len(data) == self.file.end
            return _Stop(HEADER_BYTES, "too short for a batch" if is_all else None)
        try:
            header = parse_stored_header(data, at)
        except CorruptMessageError as error:
            return _Stop(problem=error.message.partition(": ")[2])  # the caller adds the position
        stop = self._beyond(header, position, data, at)
        if stop is None and self.check_crcs and not stored_crc_ok(data, at, header):
            stop = _Stop(problem=f"the checksum of the batch at offset {header.base_offset} is wrong")
        return header if stop is None else stop

    def _beyond(self, header: BatchHeader, position: int, data: memoryview, at: int) -> _Stop | None:
        """Return a stop if a batch extends beyond the file or beyond the bytes that were read."""
        size = header.size_bytes
        if at + size <= len(data) and size <= LARGEST_BATCH_BYTES:
            return None
        if position + at + size > self.file.end:
            return _Stop(problem=f"a batch of {size:,} bytes is cut short")
        if size > LARGEST_BATCH_BYTES:
            return _Stop(problem=f"a batch of {size:,} bytes is larger than any broker writes")
        may_lack = self.headers_only and not self.check_crcs and not header.is_control
        return None if may_lack else _Stop(size)

    def _damage(self, position: int, end: int, reason: str, due: int, *, is_cut: bool) -> Damage:
        header = _header(self.file, position)
        if is_zeros(self.file, position):
            return Damage(position, self.file.end - position, reason, True, True, None)
        behind = self._behind(position, end, header, due)
        if behind is None and is_cut:
            behind = end
        stop = self.file.end if behind is None else behind
        return Damage(position, stop - position, reason, behind is None, False, header)

    def _behind(self, position: int, end: int, header: BatchHeader | None, due: int) -> int | None:
        """Return where the next batch begins: at the damaged one's stated end, else at the first that is
        found."""
        # The header of a damaged batch may be wrong, too: its size counts only if a sound batch follows.
        stated = end if header is None else position + header.size_bytes
        if stated < end and sound_batch_at(self.file, stated, due) is not None:
            return stated
        known = self.hints.after(position, end)
        # An index names only some batches.
        nearer = find_batch(self.file, position + 1, end if known is None else known, due)
        return known if nearer is None else nearer


def _header(file: LogFile, position: int) -> BatchHeader | None:
    try:
        return parse_stored_header(file.read(position, HEADER_BYTES))
    except CorruptMessageError:
        return None


def is_zeros(file: LogFile, position: int) -> bool:
    """Whether all bytes from a position on are zero.

    Raises:
        KafkaStorageError: the file cannot be read.
    """
    count = 4096  # damage mostly shows in the first bytes
    while position < file.end:
        data = file.read(position, count)
        if data != bytes(len(data)):
            return False
        position += len(data)
        count = READ_BYTES
    return True


def find_batch(file: LogFile, position: int, end: int, due: int) -> int | None:
    """Return where the first sound batch of format 2 begins in [``position``, ``end``), None if nowhere.

    Every byte is tried.

    Args:
        file: the ``.log``.
        position: where to begin.
        end: where to stop.
        due: its least base offset; bytes of a batch inside a record's value may have a lower one.

    Raises:
        KafkaStorageError: the file cannot be read.
    """
    while position < end:
        data = file.read(position, READ_BYTES)
        for found in _MAY_BEGIN.finditer(data):
            at = position + found.start()
            if at >= end:
                return None
            if sound_batch_at(file, at, due) is not None:
                return at
        position += max(len(data) - _OVERLAP_BYTES, 1)
    return None


_logger = logging.getLogger("splashdam.pipeline")

_WHAT_TO_DO = "What to do: set onDamage to report to read the sound batches."


def tell(name: str, damage: Damage, *, is_torn_end: bool, fails: bool) -> None:
    """Log damage, or raise an error.

    Args:
        name: of the file.
        damage: to report.
        is_torn_end: it is what a crash leaves at the end of a log.
        fails: other damage is an error.

    Raises:
        CorruptMessageError: it is such damage.
    """
    what = f"{name}, position {damage.position}: {damage.size_bytes:,} bytes are not a batch: {damage.reason}"
    if damage.is_zeros:
        _logger.info("%s: %s zero bytes after the last batch", name, f"{damage.size_bytes:,}")
    elif is_torn_end:
        _logger.warning("%s; treated as a torn end, which a broker would truncate", what)
    elif fails:
        raise CorruptMessageError(f"{what}. {_WHAT_TO_DO}")
    else:
        _logger.warning("%s; skipped", what)


def tell_of_batch(what: str, *, fails: bool, outcome: str = "skipped") -> None:
    """Log a batch that is wrong although its checksum is right, or raise an error.

    Args:
        what: file, position and problem.
        fails: whether it is an error.
        outcome: what happens to the batch if it is not.

    Raises:
        CorruptMessageError: ``fails`` is set.
    """
    if fails:
        raise CorruptMessageError(f"{what}. {_WHAT_TO_DO}")
    _logger.warning("%s; %s", what, outcome)
