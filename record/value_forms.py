"""Records that are a value and nothing else, ready made but for their number and the value.

Most records are that, and those of one millisecond and one size differ in nothing else. Only the Python twin
needs it, where to compute such a record's other bytes takes longer than all the rest of an append.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from splashdam.record.varint import encode_varint, size_of_varint

ValueForm: TypeAlias = tuple[Callable[..., None], bytes, bytes, int]
"""``write(memory, place, front, number, back, value)``; ``front``; ``back``; how many bytes it writes."""

_BITS_PER_BYTE = 7


class ValueForms(dict[int, ValueForm]):
    """The forms by size of the value, each made when it is first asked for.

    Attributes:
        timestamp_ms: of all records that are written with these.
        end: they serve records of lower numbers; from here on the number takes more bytes.
    """

    __slots__ = ("_delta", "_number_bytes", "end", "timestamp_ms")

    def __init__(self, timestamp_ms: int, delta_ms: int, number: int) -> None:
        """For records of this time, ``delta_ms`` after the batch's first, from ``number`` on."""
        super().__init__()
        self._delta = encode_varint(delta_ms)
        self._number_bytes = size_of_varint(number) or 1
        self.timestamp_ms = timestamp_ms
        self.end = 1 << (_BITS_PER_BYTE * self._number_bytes - 1)

    def __missing__(self, size: int) -> ValueForm:
        back = b"\x01" + encode_varint(size)  # null key, length of the value
        body_bytes = 1 + len(self._delta) + self._number_bytes + len(back) + size + 1
        front = b"%b\x00%b" % (encode_varint(body_bytes), self._delta)
        layout = _layout(len(front), self._number_bytes, len(back), size)
        form = self[size] = (layout.pack_into, front, back, layout.size)
        return form


@lru_cache(maxsize=1024)
def _layout(front_bytes: int, number_bytes: int, back_bytes: int, size: int) -> Struct:
    return Struct(f"{front_bytes}s{number_bytes}s{back_bytes}s{size}sx")  # x: no headers


NO_FORMS = ValueForms(0, 0, 0)
NO_FORMS.end = 0
"""Serves no record."""
