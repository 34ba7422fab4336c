"""Memory for batches: the budget, the line of callers that wait for some of it, and buffers that are reused.

Reservations are exact: whatever is taken is given back once, by the batch that carries it or by the ticket
that never became a batch. Nobody overtakes: while somebody waits, free bytes go to the front of the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto

from splashdam.model.lifecycle import next_state
from splashdam.record.kernel import BatchBuffer


class TicketState(Enum):
    """Where a ticket is in its life."""

    WAITING = auto()
    READY = auto()
    SPENT = auto()
    CANCELLED = auto()
    REFUSED = auto()


class TicketEvent(Enum):
    """What can happen to a ticket."""

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
    # An interrupted wait gives its ticket back without knowing what became of it meanwhile.
    (TicketState.SPENT, TicketEvent.CANCEL): TicketState.SPENT,
    (TicketState.CANCELLED, TicketEvent.CANCEL): TicketState.CANCELLED,
    (TicketState.REFUSED, TicketEvent.CANCEL): TicketState.REFUSED,
}


class MemoryTicket:
    """A place in the line for memory.

    Attributes:
        needed_bytes: what it waits for.
        granted_bytes: what is reserved for it so far; kept until it is spent or cancelled.
        on_ready: called once, when the whole amount is reserved or the budget was closed. It runs wherever
            memory was released, under the caller's guard: it must not block and must not call back.
    """

    __slots__ = ("granted_bytes", "needed_bytes", "on_ready", "state")

    def __init__(self, needed_bytes: int) -> None:
        self.needed_bytes = needed_bytes
        self.granted_bytes = 0
        self.on_ready: Callable[[], None] | None = None
        self.state = TicketState.WAITING

    @property
    def ready(self) -> bool:
        """Whether the wait is over: the memory is reserved, or will never be."""
        return self.state is not TicketState.WAITING

    def advance(self, event: TicketEvent) -> None:
        """Moves to the next state.

        Raises:
            IllegalStateError: the event is not legal in this state; nothing has changed.
        """
        self.state = next_state(TICKET_TRANSITIONS, self.state, event, "a memory ticket")

    def announce(self) -> None:
        """Tells the waiter, once."""
        on_ready, self.on_ready = self.on_ready, None
        if on_ready is not None:
            on_ready()


class MemoryBudget:
    """Bytes that may be reserved at one time."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.free_bytes = total_bytes
        self._line: deque[MemoryTicket] = deque()

    @property
    def waiting(self) -> int:
        """Number of tickets whose memory is not reserved yet."""
        return len(self._line)

    def take(self, size_bytes: int) -> bool:
        """Reserves at once, or answers False and reserves nothing."""
        if self._line or size_bytes > self.free_bytes:
            return False
        self.free_bytes -= size_bytes
        return True

    def owe(self, size_bytes: int) -> None:
        """Reserves what is in use already, whether it is free or not: less than nothing may be free then, and
        nobody gets any before that is given back."""
        self.free_bytes -= size_bytes

    def queue(self, size_bytes: int) -> MemoryTicket:
        """Joins the line. What is free now is reserved for its front already."""
        ticket = MemoryTicket(size_bytes)
        try:
            self._line.append(ticket)
            self._serve()
        except BaseException:  # of a signal handler: a ticket that nobody has would stay in the line for ever
            self.cancel(ticket)
            raise
        return ticket

    def lower(self, ticket: MemoryTicket, needed_bytes: int) -> None:
        """Less is enough for a ticket that is ready: the rest goes to the front of the line."""
        surplus_bytes = ticket.granted_bytes - needed_bytes
        if surplus_bytes > 0:
            ticket.needed_bytes = ticket.granted_bytes = needed_bytes
            self.free_bytes += surplus_bytes
            self._serve()

    def spend(self, ticket: MemoryTicket) -> int:
        """Turns a ready ticket into a reservation of ``ticket.needed_bytes``; the caller gives it back."""
        ticket.advance(TicketEvent.SPEND)
        granted, ticket.granted_bytes = ticket.granted_bytes, 0
        return granted

    def release(self, size_bytes: int) -> None:
        """Gives a reservation back; the front of the line gets it."""
        self.free_bytes += size_bytes
        if self._line:
            self._serve()

    def cancel(self, ticket: MemoryTicket) -> None:
        """Leaves the line, or gives back a grant that was not used. Repeating it does nothing."""
        waiting = ticket.state is TicketState.WAITING
        ticket.advance(TicketEvent.CANCEL)
        ticket.on_ready = None
        if waiting and ticket in self._line:
            self._line.remove(ticket)
        granted, ticket.granted_bytes = ticket.granted_bytes, 0
        self.free_bytes += granted
        self._serve()

    def close(self) -> None:
        """Sends everybody in the line away; their tickets are refused."""
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
            while self._line and self.free_bytes > 0:
                ticket = self._line[0]
                if not ticket.ready:
                    part = min(self.free_bytes, ticket.needed_bytes - ticket.granted_bytes)
                    self.free_bytes -= part
                    ticket.granted_bytes += part
                    if ticket.granted_bytes < ticket.needed_bytes:
                        break
                    ticket.advance(TicketEvent.GRANT)
                    granted.append(ticket)
                self._line.popleft()  # or it was served by somebody whom a signal handler has interrupted
        finally:
            try:
                _announce(granted)
            except BaseException:
                _announce(granted)  # who was told already is not told again
                raise


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


def _announce(tickets: Iterable[MemoryTicket]) -> None:
    """Tells all of them; what one raises (an interrupt, say) keeps nobody else from hearing of it."""
    failure: BaseException | None = None
    for ticket in tickets:
        try:
            ticket.announce()
        except BaseException as error:
            if failure is None:
                failure = error
    if failure is not None:
        raise failure
