"""Memory for batches: the budget, the line of callers that wait for memory, and reused buffers.

Reservations are exact: each is released once, by its batch or by a ticket that never became a batch. Callers
that wait for memory are served first in, first out: free bytes go to the front of the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto

from splashdam.model.lifecycle import next_state
from splashdam.record.kernel import BatchBuffer


class TicketState(Enum):
    WAITING = auto()
    READY = auto()
    SPENT = auto()
    CANCELLED = auto()
    REFUSED = auto()


class TicketEvent(Enum):
    GRANT = auto()
    SPEND = auto()
    CANCEL = auto()
    CLOSE = auto()


TICKET_TRANSITIONS: dict[tuple[TicketState, TicketEvent], TicketState] = {
    (TicketState.WAITING, TicketEvent.GRANT): TicketState.READY,
    (TicketState.WAITING, TicketEvent.CANCEL): TicketState.CANCELLED,
    (TicketState.WAITING, TicketEvent.CLOSE): TicketState.REFUSED,
    (TicketState.READY, TicketEvent.SPEND): TicketState.SPENT,
    (TicketState.READY, TicketEvent.CANCEL): TicketState.CANCELLED,
    # An interrupted wait cancels its ticket in whatever state it is by then.
    (TicketState.SPENT, TicketEvent.CANCEL): TicketState.SPENT,
    (TicketState.CANCELLED, TicketEvent.CANCEL): TicketState.CANCELLED,
    (TicketState.REFUSED, TicketEvent.CANCEL): TicketState.REFUSED,
}


class MemoryTicket:
    """A place in the line for memory.

    Attributes:
        needed_bytes: the amount it waits for.
        granted_bytes: reserved so far; kept until it is spent or cancelled.
        on_ready: called once, when the whole amount is reserved or the budget is closed. It runs in the
            thread that released memory, under the guard: it must not block and must not call back.
    """

    __slots__ = ("granted_bytes", "needed_bytes", "on_ready", "state")

    def __init__(self, needed_bytes: int) -> None:
        self.needed_bytes = needed_bytes
        self.granted_bytes = 0
        self.on_ready: Callable[[], None] | None = None
        self.state = TicketState.WAITING

    @property
    def ready(self) -> bool:
        """Whether the wait is over: the memory is reserved or was refused."""
        return self.state is not TicketState.WAITING

    def advance(self, event: TicketEvent) -> None:
        """Move to the next state.

        Raises:
            IllegalStateError: the event is not legal in this state; nothing has changed.
        """
        self.state = next_state(TICKET_TRANSITIONS, self.state, event, "a memory ticket")

    def announce(self) -> None:
        """Call ``on_ready``, once."""
        on_ready, self.on_ready = self.on_ready, None
        if on_ready is not None:
            on_ready()


class MemoryBudget:
    """The bytes that batches may reserve together."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes
        self._line: deque[MemoryTicket] = deque()

    @property
    def waiting(self) -> int:
        """Number of waiting tickets."""
        return len(self._line)

    def take(self, size_bytes: int) -> bool:
        """Reserve at once, or return False and reserve nothing."""
        # Not past the line: otherwise small records would keep a large one waiting for ever.
        if self._line or size_bytes > self.free_bytes:
            return False
        self.free_bytes -= size_bytes
        return True

    def owe(self, size_bytes: int) -> None:
        """Reserve bytes that are in use already, even if they are not free.

        ``free_bytes`` may become negative; no caller gets memory until it is positive again.
        """
        self.free_bytes -= size_bytes

    def queue(self, size_bytes: int) -> MemoryTicket:
        """Join the line of callers that wait for memory."""
        ticket = MemoryTicket(size_bytes)
        try:
            self._line.append(ticket)
            self._serve()
        except BaseException:  # from a signal handler: a lost ticket would stay in the line for ever
            self.cancel(ticket)
            raise
        return ticket

    def lower(self, ticket: MemoryTicket, needed_bytes: int) -> None:
        """Reduce a ready ticket to ``needed_bytes``; the rest goes to the front of the line."""
        surplus_bytes = ticket.granted_bytes - needed_bytes
        if surplus_bytes > 0:
            ticket.needed_bytes = ticket.granted_bytes = needed_bytes
            self.free_bytes += surplus_bytes
            self._serve()

    def spend(self, ticket: MemoryTicket) -> int:
        """Turn a ready ticket into a reservation of ``ticket.needed_bytes``, which the caller releases."""
        ticket.advance(TicketEvent.SPEND)
        granted, ticket.granted_bytes = ticket.granted_bytes, 0
        return granted

    def release(self, size_bytes: int) -> None:
        """Release a reservation; the front of the line gets it."""
        self.free_bytes += size_bytes
        if self._line:
            self._serve()

    def cancel(self, ticket: MemoryTicket) -> None:
        """Leave the line, or release an unused grant. Repeating it does nothing."""
        waiting = ticket.state is TicketState.WAITING
        ticket.advance(TicketEvent.CANCEL)
        ticket.on_ready = None
        # It is not in the line if `queue` was interrupted before it had added it.
        if waiting and ticket in self._line:
            self._line.remove(ticket)
        granted, ticket.granted_bytes = ticket.granted_bytes, 0
        self.free_bytes += granted
        self._serve()

    def close(self) -> None:
        """Refuse all waiting tickets."""
        # A ready one is still in the line if a signal handler interrupted `_serve` before it removed it.
        refused = [ticket for ticket in self._line if not ticket.ready]
        self._line.clear()
        for ticket in refused:
            ticket.advance(TicketEvent.CLOSE)
            self.free_bytes += ticket.granted_bytes
            ticket.granted_bytes = 0
        _announce(refused)

    def _serve(self) -> None:
        granted: list[MemoryTicket] = []
        try:
            # Negative after a split (`owe`): the debt is paid before a caller gets memory.
            while self._line and self.free_bytes > 0:
                ticket = self._line[0]
                if not ticket.ready:
                    # In parts: the front of the line collects what is freed until it has enough, as in Kafka.
                    part = min(self.free_bytes, ticket.needed_bytes - ticket.granted_bytes)
                    self.free_bytes -= part
                    ticket.granted_bytes += part
                    if ticket.granted_bytes < ticket.needed_bytes:
                        break
                    ticket.advance(TicketEvent.GRANT)
                    granted.append(ticket)
                self._line.popleft()  # or it was served by a call that a signal handler interrupted here
        finally:
            try:
                _announce(granted)
            except (
                BaseException
            ):  # Ctrl-C before the first one; a ticket that was announced ignores the repeat
                _announce(granted)
                raise


class BufferPool:
    """Released buffers of full size for new batches, so that the system need not map fresh pages.

    The system clears each page when it is first touched, which costs more than filling it
    (docs/decisions/buffer-memory.md). Pooled buffers are not reserved, so they must fit into free memory: the
    owner calls ``shrink`` after each reservation, and a buffer is kept only if it fits. Batches and pool
    together stay within ``buffer_memory``. The methods may run concurrently without the guard.

    Args:
        capacity_bytes: capacity of each buffer.
        limit_bytes: maximum size of the pool.
        memory: the budget of the batches.
    """

    def __init__(self, capacity_bytes: int, limit_bytes: int, memory: MemoryBudget) -> None:
        self._memory = memory
        self._capacity_bytes = capacity_bytes
        self._limit = limit_bytes // max(capacity_bytes, 1)
        self._buffers: list[BatchBuffer] = []

    def take(self, capacity_bytes: int) -> BatchBuffer:
        """Return an empty buffer of this capacity, from the pool if possible."""
        if capacity_bytes == self._capacity_bytes:
            try:
                # Not checked before: without the guard another thread may take the last one in between.
                return self._buffers.pop()
            except IndexError:
                pass
        return BatchBuffer(capacity_bytes)

    def give(self, buffer: BatchBuffer, released_bytes: int) -> None:
        """Keep a buffer if it has the right size, fits into free memory, and has no other reader.

        A request that is still being written reads it, and so does a caller that keeps a batch's bytes.

        Args:
            buffer: the buffer of a finished batch.
            released_bytes: what the batch releases right after; 0 while it stays reserved.
        """
        fits = buffer.capacity_bytes == self._capacity_bytes and len(self._buffers) < self._limit
        if fits and buffer.recycle():
            self._buffers.append(buffer)
            self.shrink(released_bytes)  # last: a concurrent reservation sees this buffer, or is seen here

    def shrink(self, more_bytes: int = 0) -> None:
        """Drop buffers until the rest fits into the free memory plus ``more_bytes``."""
        while self._buffers and (
            len(self._buffers) * self._capacity_bytes > self._memory.free_bytes + more_bytes
        ):
            try:
                self._buffers.pop()
            except IndexError:
                return


def _announce(tickets: Iterable[MemoryTicket]) -> None:
    """Announce all of them, even if one raises, for example on Ctrl-C."""
    failure: BaseException | None = None
    for ticket in tickets:
        try:
            ticket.announce()
        except BaseException as error:
            if failure is None:
                failure = error
    if failure is not None:
        raise failure
