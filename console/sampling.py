"""Rates: what was seen at several moments while somebody looked. Nobody looks: nothing is asked or kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from splashdam.model.errors import KafkaError, message_of
from splashdam.model.inspection import Overview
from splashdam.net.clock import Clock
from splashdam.net.inspector import Inspector

_FRESH_MS = 1_000
"""What is younger is shown again: several pages that are open ask the cluster as often as one."""
_SHARE = 10
"""Asking takes at most one part of so many of the time: a large cluster is asked less often."""
_KEPT = 150
_OVER_MS = 10_000
"""Rates are averages over as long."""


@attrs.frozen
class Moment:
    """What was counted at one moment.

    Attributes:
        at_ms: of the monotonic clock.
        ends: the sum of a topic's end offsets.
        requests: of a connection, by its number.
    """

    at_ms: float
    ends: Mapping[str, int]
    requests: Mapping[int, int]


@attrs.frozen(kw_only=True)
class Seen:
    """The newest overview, and what earlier ones tell.

    Attributes:
        overview: None if the cluster has not answered yet.
        failure: why the last question had no answer; None if it had one.
        failing_since_ms: in milliseconds since the epoch; None if it had one.
        moments: the older ones first.
    """

    overview: Overview | None
    failure: str | None
    failing_since_ms: int | None
    moments: Sequence[Moment]

    def records_per_second(self, topic: str | None = None) -> float | None:
        """Return how many records arrive, in a topic or in all; None while that is not known."""
        return self._rate(lambda moment: _ends(moment, topic))

    def requests_per_second(self, number: int) -> float | None:
        """Return how many requests a connection sends; None while that is not known."""
        return self._rate(lambda moment: moment.requests.get(number))

    def history(self, topic: str | None = None) -> list[float]:
        """Return the records per second between each two moments, the oldest first."""
        found = []
        for before, after in zip(self.moments, list(self.moments)[1:], strict=False):
            one, other = _ends(before, topic), _ends(after, topic)
            if one is not None and other is not None:
                found.append(_per_second(one, other, after.at_ms - before.at_ms))
        return found

    def _rate(self, count: Callable[[Moment], int | None]) -> float | None:
        if len(self.moments) < 2:
            return None
        last = self.moments[-1]
        first = next(each for each in self.moments if last.at_ms - each.at_ms <= _OVER_MS or each is last)
        if first is last:
            first = self.moments[-2]
        one, other = count(first), count(last)
        if one is None or other is None:
            return None
        return _per_second(one, other, last.at_ms - first.at_ms)


def _ends(moment: Moment, topic: str | None) -> int | None:
    return sum(moment.ends.values()) if topic is None else moment.ends.get(topic)


def _per_second(one: int, other: int, duration_ms: float) -> float:
    # A topic that was deleted and made again counts from zero.
    return max(0, other - one) * 1000 / duration_ms if duration_ms > 0 else 0.0


class Sampler:
    """Asks the inspector when somebody looks, and remembers the last minutes.

    Args:
        inspector: asks the cluster.
        clock: of the console.
    """

    def __init__(self, inspector: Inspector, clock: Clock) -> None:
        self._inspector = inspector
        self._clock = clock
        self._turn = trio.Lock()
        self._moments: deque[Moment] = deque(maxlen=_KEPT)
        self._overview: Overview | None = None
        self._failure: str | None = None
        self._failing_since_ms: int | None = None
        self._fresh_until_ms = float("-inf")

    async def look(self) -> Seen:
        """Return what is known now; ask the cluster if that is no longer fresh."""
        async with self._turn:
            began_ms = self._clock.now_ms()
            if began_ms >= self._fresh_until_ms:
                await self._ask()
                now_ms = self._clock.now_ms()
                self._fresh_until_ms = now_ms + max(_FRESH_MS, _SHARE * (now_ms - began_ms))
        return Seen(
            overview=self._overview,
            failure=self._failure,
            failing_since_ms=self._failing_since_ms,
            moments=tuple(self._moments),
        )

    async def _ask(self) -> None:
        try:
            overview = await self._inspector.overview()
        except KafkaError as error:
            self._failure = message_of(error)
            self._failing_since_ms = self._failing_since_ms or self._clock.wall_ms()
            return
        self._overview, self._failure, self._failing_since_ms = overview, None, None
        self._moments.append(
            Moment(
                self._clock.now_ms(),
                {topic.name: topic.end_offsets for topic in overview.topics if not topic.is_internal},
                {client.number: client.requests for client in overview.clients or ()},
            )
        )
