"""Append buffers of full size that are used again, so that the system need not hand out their pages anew."""

from __future__ import annotations

from splashdam.accumulator.memory import MemoryBudget
from splashdam.record.kernel import BatchBuffer


class BufferPool:
    """Buffers of one capacity that batches have let go of.

    What lies here is not reserved, so it must be free: its owner calls ``shrink`` after each reservation, and
    a buffer that comes is kept only if it is. All batches and this pool together stay within
    ``buffer_memory``. Each method is safe beside the others without the guard.

    Args:
        capacity_bytes: of each buffer.
        limit_bytes: what it holds at most.
        memory: the budget of the batches.
    """

    def __init__(self, capacity_bytes: int, limit_bytes: int, memory: MemoryBudget) -> None:
        self._memory = memory
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

    def give(self, buffer: BatchBuffer, released_bytes: int) -> None:
        """Keeps it if it has the right size, is free memory, and nobody can read it any more.

        A request that is still being written may, and so may whoever keeps a batch's bytes.

        Args:
            buffer: what a batch has let go of.
            released_bytes: what that batch gives back to the budget right after; 0 while it stays reserved.
        """
        fits = buffer.capacity_bytes == self._capacity_bytes and len(self._buffers) < self._limit
        if fits and buffer.recycle():
            self._buffers.append(buffer)
            self.shrink(released_bytes)  # last: who reserves meanwhile sees this buffer, or is seen here

    def shrink(self, more_bytes: int = 0) -> None:
        """Lets go of buffers until the rest fits what is free, and ``more_bytes``."""
        while self._buffers and (
            len(self._buffers) * self._capacity_bytes > self._memory.free_bytes + more_bytes
        ):
            try:
                self._buffers.pop()
            except IndexError:
                return
