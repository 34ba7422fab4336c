"""Append buffers of full size that are used again, so that the system need not hand out their pages anew."""

from __future__ import annotations

from splashdam.record.kernel import BatchBuffer


class BufferPool:
    """Buffers of one capacity that batches have let go of.

    What lies here is not reserved, so its owner calls ``shrink`` when the budget runs low: all batches and
    this pool together stay within ``buffer_memory``. Each method is safe beside the others without the guard.

    Args:
        capacity_bytes: of each buffer.
        limit_bytes: what it holds at most.
    """

    def __init__(self, capacity_bytes: int, limit_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._limit = limit_bytes // max(capacity_bytes, 1)
        self._buffers: list[BatchBuffer] = []

    def take(self, capacity_bytes: int) -> BatchBuffer:
        """A buffer of this capacity without records, from here if there is one."""
        if capacity_bytes == self._capacity_bytes:
            try:
                return self._buffers.pop()
            except IndexError:
                pass
        return BatchBuffer(capacity_bytes)

    def give(self, buffer: BatchBuffer) -> None:
        """Keeps it if it has the right size and nobody can read its memory any more.

        A request that is still being written may, and so may whoever keeps a batch's bytes.
        """
        fits = buffer.capacity_bytes == self._capacity_bytes and len(self._buffers) < self._limit
        if fits and buffer.recycle():
            self._buffers.append(buffer)

    def shrink(self, free_bytes: int) -> None:
        """Lets go of buffers until the rest fits ``free_bytes``."""
        while self._buffers and len(self._buffers) * self._capacity_bytes > free_bytes:
            try:
                self._buffers.pop()
            except IndexError:
                return
