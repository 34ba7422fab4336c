"""The two ways to have a producer hold nothing any more: flush delivers what there is, purge fails it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from splashdam.client.running.guard import refuse_inside_a_send
from splashdam.model.errors import PurgedError
from splashdam.model.log_text import fields

if TYPE_CHECKING:
    from splashdam.accumulator.accumulator import RecordAccumulator
    from splashdam.client.report import DeliveryReport, Stretch
    from splashdam.client.sending.late import LateRecords
    from splashdam.client.settings.producer_settings import ProducerSettings
    from splashdam.net.guard import Guard
    from splashdam.sender.sender import Sender

logger = logging.getLogger("splashdam.client")


class Emptied(Protocol):
    """A producer's core, as far as flush and purge need it."""

    @property
    def settings(self) -> ProducerSettings: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def accumulator(self) -> RecordAccumulator: ...
    @property
    def late(self) -> LateRecords: ...
    @property
    def sender(self) -> Sender: ...

    def refuse_if_foreign(self) -> None:
        """Raises in a forked child."""


class Emptying:
    """Flush and purge, up to where somebody has to wait.

    Args:
        core: the producer's.
        wake: the sender takes a turn soon.
    """

    def __init__(self, core: Emptied, wake: Callable[[], None]) -> None:
        self._core = core
        self._wake = wake

    def begin_flush(self) -> list[Stretch]:
        """Makes everything sendable at once, and names the records a flush has to wait for.

        Raises:
            IllegalStateError: called in a signal handler or ``__del__`` that has interrupted a ``send``,
                where the wait would be for ever; or in a forked child.
        """
        core = self._core
        core.refuse_if_foreign()
        refuse_inside_a_send("flush()")
        late = core.late.outcomes()
        batches = core.guard.run(self._begin)
        self._wake()
        return batches + [(outcome, 0, 1) for outcome in late]

    def _begin(self) -> list[Stretch]:
        accumulator = self._core.accumulator
        accumulator.begin_flush()
        return [(batch.outcome, 0, batch.records_now) for batch in accumulator.incomplete]

    def flush_report(self, records: Sequence[Stretch], timeout: float | None) -> DeliveryReport:
        """What became of ``records``; logged if some are pending, since few callers look."""
        from splashdam.client.report import report_on

        report = report_on(records)
        if report.pending:
            name = self._core.settings.client_id
            logger.warning(
                "%s: %d records are pending after flush(timeout=%s)",
                name,
                report.pending,
                timeout,
                extra=fields(client_id=name, records=report.pending),
            )
        return report

    def end_flush(self) -> None:
        """Ends a ``begin_flush``."""
        self._core.guard.run(self._core.accumulator.end_flush)

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fails what the application does not want any more; counts the records.

        Raises:
            IllegalStateError: as ``begin_flush``.
        """
        core = self._core
        core.refuse_if_foreign()
        refuse_inside_a_send("purge()")
        late = core.late.fail_all(PurgedError("the record was purged; it was not sent")) if queued else 0
        return late + core.sender.purge(queued=queued, in_flight=in_flight)
