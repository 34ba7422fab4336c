"""Rates: what was seen at several moments while somebody looked. Nobody looks: nothing is asked or kept."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import attrs
import trio

from splashdam.model.errors import KafkaError, message_of
from splashdam.model.views.cluster import GroupView, Overview
from splashdam.net.clock import Clock
from splashdam.net.inspector import Inspector

T = TypeVar("T")

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


@attrs.frozen
class Lags:
    """How far groups had read at one moment.

    Attributes:
        at_ms: in milliseconds since the epoch.
        of: the lag, by group id.
        read: the sum of all groups' committed offsets, by topic: it grows by the records that are read.
    """

    at_ms: int
    of: Mapping[str, int]
    read: Mapping[str, int]


@attrs.frozen(kw_only=True)
class SeenGroups:
    """The newest look at consumer groups, and what earlier ones tell.

    Attributes:
        groups: None if the cluster has not answered yet.
        failure: why the last question had no answer; None if it had one.
        lags: of earlier moments, the older ones first.
    """

    groups: Sequence[GroupView] | None
    failure: str | None
    lags: Sequence[Lags]

    def read_per_second(self, topic: str | None = None) -> float | None:
        """Return how many records groups read, of a topic or of all; None while that is not known."""
        if len(self.lags) < 2:
            return None
        last = self.lags[-1]
        first = next(each for each in self.lags if last.at_ms - each.at_ms <= _OVER_MS or each is last)
        # Nobody looked for a while, so the two newest looks lie further apart.
        if first is last:
            first = self.lags[-2]
        names = last.read if topic is None else (topic,)
        one, other = (sum(each.read.get(name, 0) for name in names) for each in (first, last))
        return _per_second(one, other, last.at_ms - first.at_ms)

    def lag_history(self, group_id: str) -> list[tuple[int, int]]:
        """Return the lag of a group over time, in milliseconds since the epoch."""
        return [(each.at_ms, each.of[group_id]) for each in self.lags if group_id in each.of]


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


class Fresh(Generic[T]):
    """Asks a question anew only when its answer is no longer fresh; several who ask get one answer.

    Args:
        ask: asks the cluster.
        clock: of the console.

    Attributes:
        answer: the last one; None if there was none.
        failure: why the last question had none; None if it had one.
        failing_since_ms: in milliseconds since the epoch; None if it had one.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self.answer: T | None = None
        self.failure: str | None = None
        self.failing_since_ms: int | None = None
        self._ask = ask
        self._clock = clock
        self._turn = trio.Lock()
        self._until_ms = float("-inf")

    async def look(self) -> T | None:
        """Return the answer, a new one if that is due."""
        async with self._turn:
            began_ms = self._clock.now_ms()
            if began_ms >= self._until_ms:
                await self._renew()
                now_ms = self._clock.now_ms()
                self._until_ms = now_ms + max(_FRESH_MS, _SHARE * (now_ms - began_ms))
        return self.answer

    def forget(self) -> None:
        """Ask anew the next time: something was changed."""
        self._until_ms = float("-inf")

    async def _renew(self) -> None:
        try:
            self.answer = await self._ask()
        except KafkaError as error:
            self.failure = message_of(error)
            self.failing_since_ms = self.failing_since_ms or self._clock.wall_ms()
        else:
            self.failure = self.failing_since_ms = None


class Sampler:
    """What was seen of a cluster in the last minutes, while somebody looked.

    Args:
        inspector: asks the cluster.
        clock: of the console.
    """

    def __init__(self, inspector: Inspector, clock: Clock) -> None:
        self._inspector = inspector
        self._clock = clock
        self._moments: deque[Moment] = deque(maxlen=_KEPT)
        self._lags: deque[Lags] = deque(maxlen=_KEPT)
        self._overview = Fresh(self._ask_overview, clock)
        self._groups = Fresh(self._ask_groups, clock)

    async def look(self) -> Seen:
        """Return what is known of the cluster."""
        overview = await self._overview.look()
        return Seen(
            overview=overview,
            failure=self._overview.failure,
            failing_since_ms=self._overview.failing_since_ms,
            moments=tuple(self._moments),
        )

    async def look_at_groups(self, *, asks: bool = True) -> SeenGroups:
        """Return what is known of consumer groups.

        Args:
            asks: False: only what is known already; many groups are many questions.
        """
        groups = await self._groups.look() if asks else self._groups.answer
        return SeenGroups(groups=groups, failure=self._groups.failure, lags=tuple(self._lags))

    def forget_groups(self) -> None:
        """Look anew the next time: a group was changed."""
        self._groups.forget()

    async def _ask_overview(self) -> Overview:
        overview = await self._inspector.overview()
        self._moments.append(
            Moment(
                self._clock.now_ms(),
                {topic.name: topic.end_offsets for topic in overview.topics if not topic.is_internal},
                {client.number: client.requests for client in overview.clients or ()},
            )
        )
        return overview

    async def _ask_groups(self) -> Sequence[GroupView]:
        overview = await self._overview.look()
        groups = await self._inspector.groups({} if overview is None else overview.end_offsets)
        read: Counter[str] = Counter()
        for group in groups:
            for each in group.partitions:
                read[each.topic_partition.topic] += each.committed_offset or 0
        lags = {each.group_id: each.lag for each in groups}
        self._lags.append(Lags(self._clock.wall_ms(), lags, read))
        return groups
