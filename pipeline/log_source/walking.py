"""Walking along the batches of one segment, a large read at a time; a torn tail is told from damage."""

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
"""What one read brings: few requests to an object store, and little memory."""

_MAY_BEGIN = re.compile(rb"(?=\x00[\s\S]{15}\x02)")  # a batch: an offset below 2^56, and format 2
_OVERLAP_BYTES = HEADER_BYTES


class Chunk(NamedTuple):
    """Whole batches, one behind the other.

    Attributes:
        position: of the first in its file.
        data: all of them.
        batches: where each begins in ``data``, and its header.
    """

    position: int
    data: memoryview
    batches: list[tuple[int, BatchHeader]]


class Damage(NamedTuple):
    """Bytes that are no batch.

    Attributes:
        position: where they begin.
        size_bytes: up to the next batch, or to the end of the file.
        reason: why they are none.
        is_tail: no batch comes behind them.
        is_zeros: they are all zero, as in a file that was preallocated.
        header: of a batch whose bytes are wrong; None where not even the header can be read.
    """

    position: int
    size_bytes: int
    reason: str
    is_tail: bool
    is_zeros: bool
    header: BatchHeader | None


class _Stop(NamedTuple):
    """Why the batches of one read end: the next needs a larger read, or is wrong, or there is none."""

    needed_bytes: int = 0
    problem: str | None = None


@attrs.frozen
class Walk:
    """How to walk along one file.

    Attributes:
        file: the ``.log``.
        hints: where batches may be found again behind damage.
        check_crcs: whether a batch with a wrong checksum counts as damage.
        headers_only: batches need not be whole in ``Chunk.data``, but for control batches.
        read_bytes: what one read brings; a larger batch is read as a whole.
    """

    file: LogFile
    hints: OffsetHints
    check_crcs: bool = True
    headers_only: bool = False
    read_bytes: int = READ_BYTES

    def chunks(self, start: int, end: int, *, is_cut: bool = False) -> Iterator[Chunk | Damage]:
        """The batches that begin in [``start``, ``end``), and what is none.

        Args:
            start: where a batch begins.
            end: where another begins, or the end of the file.
            is_cut: a batch was found at ``end``; else the file ended there when it was listed.

        Raises:
            KafkaStorageError: the file cannot be read.
            CorruptMessageError: the batches do not lead to ``end``.
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
        """The whole batches in ``data``, where they end, and why there."""
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
            return _Stop(problem=error.message.partition(": ")[2])  # the place is told by the caller
        stop = self._beyond(header, position, data, at)
        if stop is None and self.check_crcs and not stored_crc_ok(data, at, header):
            stop = _Stop(problem=f"the checksum of the batch at offset {header.base_offset} is wrong")
        return header if stop is None else stop

    def _beyond(self, header: BatchHeader, position: int, data: memoryview, at: int) -> _Stop | None:
        """Whether a batch ends where there is nothing, or nothing was read."""
        size = header.size_bytes
        if at + size <= len(data) and size <= LARGEST_BATCH_BYTES:
            return None
        if position + at + size > self.file.end:
            return _Stop(problem=f"a batch of {size:,} bytes is cut short")
        if size > LARGEST_BATCH_BYTES:
            return _Stop(problem=f"a batch of {size:,} bytes is too large to be one")
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
        """Where the next batch is: where the damaged one says that it ends, else wherever one is found."""
        stated = end if header is None else position + header.size_bytes
        if stated < end and sound_batch_at(self.file, stated, due) is not None:
            return stated
        known = self.hints.after(position, end)
        nearer = find_batch(self.file, position + 1, end if known is None else known, due)
        return known if nearer is None else nearer


def _header(file: LogFile, position: int) -> BatchHeader | None:
    try:
        return parse_stored_header(file.read(position, HEADER_BYTES))
    except CorruptMessageError:
        return None


def is_zeros(file: LogFile, position: int) -> bool:
    """Whether nothing but zeros stands from a position on.

    Raises:
        KafkaStorageError: the file cannot be read.
    """
    count = 4096  # nearly every damage shows at once
    while position < file.end:
        data = file.read(position, count)
        if data != bytes(len(data)):
            return False
        position += len(data)
        count = READ_BYTES
    return True


def find_batch(file: LogFile, position: int, end: int, due: int) -> int | None:
    """Where the first sound batch of format 2 begins in [``position``, ``end``), looking at every byte.

    Args:
        file: the ``.log``.
        position: where to begin.
        end: where to stop.
        due: the batch does not hold an offset before it, as one inside a record's value may.

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

_WHAT_TO_DO = "What to do: set onDamage to report, which reads what is sound."


def tell(name: str, damage: Damage, *, is_torn_end: bool, fails: bool) -> None:
    """Tells of bytes that are no batch.

    Args:
        name: of the file.
        damage: what was found.
        is_torn_end: it is what a crash leaves at the end of a log.
        fails: other damage is an error.

    Raises:
        CorruptMessageError: it is such damage.
    """
    what = f"{name}, position {damage.position}: {damage.size_bytes:,} bytes are no batch: {damage.reason}"
    if damage.is_zeros:
        _logger.info("%s: %s zero bytes behind the last batch", name, f"{damage.size_bytes:,}")
    elif is_torn_end:
        _logger.warning("%s; taken for a torn end, which a broker would cut off", what)
    elif fails:
        raise CorruptMessageError(f"{what}. {_WHAT_TO_DO}")
    else:
        _logger.warning("%s; left out", what)


def tell_of_batch(what: str, *, fails: bool, outcome: str = "left out") -> None:
    """Tells of a batch whose checksum is right, and that is wrong nevertheless.

    Args:
        what: file, position, and what is wrong.
        fails: it is an error.
        outcome: what becomes of it where it is none.

    Raises:
        CorruptMessageError: it is to fail.
    """
    if fails:
        raise CorruptMessageError(f"{what}. {_WHAT_TO_DO}")
    _logger.warning("%s; %s", what, outcome)
