"""What ``flush`` answers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import attrs

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.kernel import FAILED, PENDING, SPLIT, SUCCEEDED, BatchOutcome
from splashdam.record.outcome import fresh


@attrs.frozen
class FlushReport:
    """What became of the batches that were not acknowledged when ``flush`` was called.

    Attributes:
        delivered_batches: batches the cluster has.
        failed_batches: batches that were given up; their records' futures say why.
        pending_batches: batches still on their way when the time was up; 0 without a timeout.
        errors: one error of each kind among the failed.
    """

    delivered_batches: int = 0
    failed_batches: int = 0
    pending_batches: int = 0
    errors: tuple[BaseException, ...] = ()

    def __bool__(self) -> bool:
        """True if everything was delivered."""
        return not self.failed_batches and not self.pending_batches


def report_on(outcomes: Iterable[BatchOutcome]) -> FlushReport:
    """Counts what became of ``outcomes`` up to now; of a batch that was split, its parts."""
    states: Counter[int] = Counter()
    errors: dict[type[BaseException], BaseException] = {}
    for outcome in outcomes:
        for leaf in _leaves(outcome):
            states[leaf.state] += 1
            if leaf.error is not None:
                errors.setdefault(type(leaf.error), leaf.error)
    return FlushReport(
        states[SUCCEEDED], states[FAILED], states[PENDING], tuple(fresh(error) for error in errors.values())
    )


def _leaves(outcome: BatchOutcome) -> Iterator[BatchOutcome]:
    """The outcomes that decide: itself, or those of its parts, found record by record."""
    last = None
    with suppress(IllegalArgumentError):  # past the last record
        for index in itertools.count():
            leaf, _ = outcome.leaf_of(index)
            if leaf is not last:
                last = leaf
                yield leaf
            if outcome.state != SPLIT:
                return
