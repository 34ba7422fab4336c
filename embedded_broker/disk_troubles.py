"""What is said of a disk that refuses appends: one line when it begins, one when it is over.

A producer repeats a refused batch every 100 ms, and each partition of a full disk refuses its own: a line for
each of them would say nothing new, and would itself take room.
"""

from __future__ import annotations

import logging

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock

_log = logging.getLogger(__name__)

_REMIND_MS = 60_000
"""After so long a trouble that goes on is said again, with how much it has refused."""


class DiskTroubles:
    """The troubles of one broker, by their cause.

    Args:
        clock: says when a trouble is to be said again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._partitions: dict[TopicPartition, None] = {}
        self._said_ms: dict[str, float] = {}
        self._refused = 0

    @property
    def is_one(self) -> bool:
        """Whether something was refused, and nothing was appended in that place since."""
        return bool(self._partitions)

    def refused(self, topic_partition: TopicPartition, error: KafkaStorageError) -> None:
        """A batch was not appended, or is not as safe as was asked."""
        now_ms, cause = self._clock.now_ms(), _cause(error)
        self._partitions[topic_partition] = None
        self._refused += 1
        said_ms = self._said_ms.get(cause)
        if said_ms is None:
            _log.error("cannot append to %s: %s", topic_partition, error.message)
        elif now_ms - said_ms >= _REMIND_MS:
            _log.error(
                "still cannot append: %d batches of %d partitions were refused, at last one of %s: %s",
                self._refused,
                len(self._partitions),
                topic_partition,
                error.message,
            )
        else:
            return
        self._said_ms[cause] = now_ms

    def appended(self, topic_partition: TopicPartition) -> None:
        """A batch was taken; once each partition in trouble has taken one, the trouble is over."""
        if self._partitions.pop(topic_partition, self) is self or self._partitions:
            return
        now_ms = self._clock.now_ms()
        _log.warning("appends are taken again; %d batches were refused", self._refused)
        self._refused = 0
        # A disk that is nearly full takes small batches between large ones: that is still the same trouble.
        self._said_ms = {cause: at for cause, at in self._said_ms.items() if now_ms - at < _REMIND_MS}


def _cause(error: KafkaStorageError) -> str:
    """The same text for each file that the same trouble meets."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return error.message if cause is None else str(cause.strerror or cause)
