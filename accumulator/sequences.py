"""Arithmetic on a producer's sequence numbers, which count records and wrap from 2,147,483,647 to 0.

Comparing them with ``<`` is wrong across the wrap, so every comparison in this project goes through here.
"""

from __future__ import annotations

SEQUENCE_COUNT = 1 << 31
"""Number of sequence numbers there are: 0 to 2,147,483,647."""

NO_SEQUENCE = -1
"""A batch that has no sequence number (yet)."""


def sequence_after(sequence: int, records: int) -> int:
    """The sequence number ``records`` further on."""
    return (sequence + records) % SEQUENCE_COUNT


def is_earlier(sequence: int, other: int) -> bool:
    """Whether ``sequence`` comes before ``other``, for two that are less than half the circle apart."""
    return 0 < (other - sequence) % SEQUENCE_COUNT < SEQUENCE_COUNT // 2
