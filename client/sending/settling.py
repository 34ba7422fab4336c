"""Records that ``RecordIntake`` could not bring in at once: their sender waits, or must not."""

from __future__ import annotations

import math

import trio

from splashdam.client.future import RecordFuture, in_callback
from splashdam.client.sending.admission import Admission
from splashdam.client.sending.driving import drive_in_thread, drive_in_trio
from splashdam.client.sending.intake import RecordIntake
from splashdam.client.sending.late import LateRecords
from splashdam.client.waiters import SENDER_THREADS
from splashdam.model.errors import WouldBlock


class Settling:
    """Brings admissions in: by a wait here, by the sender's loop later, or not at all."""

    def __init__(self, intake: RecordIntake, late: LateRecords) -> None:
        self._intake = intake
        self._late = late

    def in_thread(self, admission: Admission) -> RecordFuture:
        """Waits here if that is possible, else lets the loop do it."""
        intake, late = self._intake, self._late
        if intake.guard.interrupted():
            return late.add(admission)
        if SENDER_THREADS.here():
            future = None if late.waiting else admission.step()
            return future or late.add(admission)
        return drive_in_thread(admission, intake.clock, intake.tally)

    async def in_trio(self, admission: Admission) -> RecordFuture:
        """As ``in_thread``, in a trio task: a checkpoint."""
        intake = self._intake
        if intake.guard.interrupted():
            return self._late.add(admission)
        future = await drive_in_trio(admission, intake.clock, intake.tally)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return future

    def now(self, admission: Admission) -> RecordFuture:
        """Never waits.

        Raises:
            WouldBlock: it would have to; nothing is queued.
        """
        late = self._late
        if self._intake.guard.interrupted() or (in_callback() and late.waiting):  # behind those, in order
            return late.add(admission)
        admission.deadline_ms = math.inf  # whether time is up is a question for those who wait
        admission.patient = False
        future = admission.step()
        if future is not None:
            return future
        admission.cancel()
        what = "" if admission.waits_for is None else admission.waits_for.what
        raise WouldBlock(what, f"a record for topic {admission.topic!r} would have to wait for {what}")
