"""Which neighbouring segments become one: as many as a segment, its indexes and its offsets can hold."""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.storage.index.offset_index import MAX_RELATIVE_OFFSET
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.settings import LogSettings


def group_segments(
    segments: Sequence[LogSegment], settings: LogSettings, first_uncleanable: int
) -> list[list[LogSegment]]:
    """Groups in the order of their offsets; each has one segment at least.

    An empty segment never begins a new group, or a log of which nothing is left would keep one for every
    2^31 offsets.

    Args:
        segments: neighbours.
        settings: of the log.
        first_uncleanable: where the last of ``segments`` ends.
    """
    groups: list[list[LogSegment]] = []
    ends = [*(segment.base_offset for segment in segments), first_uncleanable][1:]
    sizes: tuple[int, ...] = (0, 0, 0)
    limits = (settings.segment_bytes, settings.segment_index_bytes, settings.segment_index_bytes)
    for segment, end in zip(segments, ends, strict=True):
        own = (
            segment.size_bytes,
            segment.offset_index.file.size_bytes or 0,
            segment.time_index.file.size_bytes or 0,
        )
        together = tuple(one + other for one, other in zip(sizes, own, strict=True))
        if (
            groups
            and all(size <= limit for size, limit in zip(together, limits, strict=True))
            and (not own[0] or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
            sizes = together
        else:
            groups.append([segment])
            sizes = own
    return groups
