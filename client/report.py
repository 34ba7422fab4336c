"""What ``flush`` answers."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from splashdam.record.kernel import BatchOutcome


@attrs.frozen
class FlushReport:
    """What became of the batches that were not acknowledged when ``flush`` was called.

    Attributes:
        delivered: batches the cluster has.
        failed: batches that were given up; their records' futures say why.
        pending: batches still on their way when the time was up; 0 without a timeout.
        errors: one error of each kind among the failed.
    """

    delivered: int = 0
    failed: int = 0
    pending: int = 0
    errors: tuple[BaseException, ...] = ()

    def __bool__(self) -> bool:
        """True if everything was delivered."""
        return not self.failed and not self.pending


def report_on(outcomes: Iterable[BatchOutcome]) -> FlushReport:
    """Counts what became of ``outcomes`` up to now."""
    delivered = failed = pending = 0
    errors: dict[type[BaseException], BaseException] = {}
    for outcome in outcomes:
        error = _error(outcome)
        if error is not None:
            failed += 1
            errors.setdefault(type(error), error)
        elif outcome.done():
            delivered += 1
        else:
            pending += 1
    return FlushReport(delivered, failed, pending, tuple(errors.values()))
