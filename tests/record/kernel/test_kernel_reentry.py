"""Python code that the kernels run in the middle of growing, and numbers that lie."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import pytest

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.reader import read_records
from splashdam.record.sealing import seal


class Grower:
    """Garbage whose finalizer makes a buffer grow and fills it."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.cycle = self

    def __del__(self) -> None:
        if self.buffer.capacity_bytes < 1 << 20:
            self.buffer.reserve(1 << 20)
            for _ in range(1000):
                assert self.buffer.try_append(0, None, b"x" * 1000, None)


def test_a_finalizer_grows_the_buffer_that_is_growing(kernel: ModuleType) -> None:
    """A collection in the middle of ``reserve`` uses the same buffer; its records are all kept."""
    buffer = kernel.BatchBuffer(100)
    assert buffer.try_append(0, None, b"first", None)
    thresholds = gc.get_threshold()
    gc.disable()
    gc.collect()
    Grower(buffer)
    try:
        gc.set_threshold(1)
        gc.enable()
        buffer.reserve(4096)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    gc.collect()
    assert buffer.capacity_bytes == 1 << 20
    assert buffer.record_count == 1001
    assert buffer.size_bytes <= buffer.capacity_bytes
    records = read_records(seal(buffer))
    assert [records[0].value, records[1000].value] == [b"first", b"x" * 1000]


class Liar(int):
    """Is within every limit, if one asks it."""

    def __ge__(self, _other: object) -> bool:
        return True

    __le__ = __gt__ = __lt__ = __ge__


@pytest.mark.parametrize("number", [1, 60, 2**31, 2**70, -1, -(2**70)])
@pytest.mark.parametrize("kind", [int, Liar])
def test_what_is_checked_is_what_is_used(kernel: ModuleType, kind: type[int], number: int) -> None:
    """Capacities are compared as numbers, whatever a subclass of int says of itself."""
    with pytest.raises(IllegalArgumentError, match=f"capacity_bytes={number}: a batch has 61 to 2147483647"):
        kernel.BatchBuffer(kind(number))
    buffer = kernel.BatchBuffer(kind(100))
    if number < 100:
        buffer.reserve(kind(number))
    else:
        with pytest.raises(IllegalArgumentError, match=f"capacity_bytes={number}"):
            buffer.reserve(kind(number))
    assert buffer.capacity_bytes == 100


@pytest.mark.parametrize("wrong", [1.5, "100", None])
def test_what_is_no_number(kernel: ModuleType, wrong: object) -> None:
    """It is a TypeError, and nothing changes."""
    with pytest.raises(TypeError):
        kernel.BatchBuffer(wrong)
    buffer = kernel.BatchBuffer(100)
    with pytest.raises(TypeError):
        buffer.reserve(wrong)
    assert buffer.capacity_bytes == 100
