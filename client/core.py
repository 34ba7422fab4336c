"""What a producer's loop may refer to: everything but the producer.

So a producer that nobody uses any more is collected although its loop still runs, and that closes it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import trio

from splashdam.client import process
from splashdam.client.connecting import TrackedConnect
from splashdam.client.guard import Guard
from splashdam.client.intake import RecordIntake
from splashdam.client.late import LateRecords
from splashdam.client.lifecycle import Event, State
from splashdam.client.settings import ProducerSettings
from splashdam.client.waiters import SENDER_THREADS, Latch
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect
from splashdam.sender.metadata import Metadata
from splashdam.sender.sender import Sender
from splashdam.sender.wakeup import Wakeup

logger = logging.getLogger("splashdam.client")


class ProducerCore:
    """Accumulator, sender and intake of one producer, and their common life.

    Args:
        settings: complete and free of contradictions (``producer_settings``).
        addresses: where the cluster is looked for first.
        connect: opens connections.
        clock: the one clock; ``trio.run`` has the same.

    Attributes:
        state: see ``lifecycle.py``.
        finished: opens when the loop has ended and every future is done.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        addresses: Sequence[tuple[str, int]],
        connect: Connect,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.state = State.NEW
        self.finished = Latch()
        self.guard = Guard()
        self.wakeup = Wakeup()
        self._pid = os.getpid()
        self._crash: BaseException | None = None
        self._scope: trio.CancelScope | None = None
        self._connect = TrackedConnect(connect, settings.socket_options)
        sender_settings = _sender_settings(settings, addresses)
        self.accumulator = _accumulator(settings)
        self.metadata = Metadata(sender_settings)
        self.sender = Sender(
            settings=sender_settings,
            accumulator=self.accumulator,
            metadata=self.metadata,
            connect=self._connect,
            clock=clock,
            guard=self.guard,
            wakeup=self.wakeup,
        )
        self.intake = RecordIntake(
            settings=settings,
            accumulator=self.accumulator,
            metadata=self.metadata,
            guard=self.guard,
            wake=self.wakeup.wake,
            clock=clock,
        )
        self.intake.refuse = self._refusal
        self.late = LateRecords(self.intake)
        process.keep_watch(self)

    async def main(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The loop: sends until the producer is closed. It never raises what the sender raises."""
        self._advance(Event.START)
        SENDER_THREADS.enter()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.late.run)
                task_status.started()
                await self.sender.run()
                nursery.cancel_scope.cancel()
        except Exception as error:
            logger.exception("%s: the sender stopped, which is a bug", self.settings.client_id)
            self._crash = error
        finally:
            SENDER_THREADS.leave()
            self._finish()
