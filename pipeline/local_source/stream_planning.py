"""What a trigger of a stream takes, and what becomes of it when partitions come and go. Free of Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock
from splashdam.pipeline.local_source.data_loss import DataLoss
from splashdam.pipeline.local_source.planning import OffsetRange, backlog_of
from splashdam.pipeline.local_source.positions import Offsets, in_order
from splashdam.pipeline.local_source.resolving import earliest
from splashdam.pipeline.local_source.subscriptions import Cluster, Subscription


@attrs.define
class Waiting:
    """Lets a trigger wait for enough records, but not too long.

    Attributes:
        clock: for the wait.
        min_offsets: how many are enough; None if any are.
        max_delay_ms: the longest wait since the last trigger that did not.
    """

    clock: Clock
    min_offsets: int | None
    max_delay_ms: float
    _last_ms: float | None = attrs.field(default=None, init=False)

    def is_over(self, start: Offsets, latest: Offsets) -> bool:
        """Whether the trigger goes ahead; the first one always does.

        Args:
            start: where it begins, with the partitions that are new.
            latest: the ends.
        """
        now_ms = self.clock.now_ms()
        is_early = self._last_ms is not None and now_ms - self._last_ms < self.max_delay_ms
        if is_early and backlog_of(start, latest) < (self.min_offsets or 0):
            return False
        self._last_ms = now_ms
        return True


def with_new_partitions(start: Offsets, latest: Offsets, cluster: Cluster) -> dict[TopicPartition, int]:
    """Where a trigger begins: partitions that have appeared begin at their first offset."""
    return in_order({**earliest(cluster, [each for each in latest if each not in start]), **start})


def known_to(
    end: Offsets, initial: Offsets, subscription: Subscription, cluster: Cluster
) -> dict[TopicPartition, int]:
    """Where a stream began, without partitions that came after the first trigger's end was fixed.

    Whoever asks again for the beginning, before the first trigger is committed, hears of partitions that this
    trigger does not have. They are not gone: to the next one they are new.
    """
    late = {each for each in initial if each not in end}
    late &= set(subscription.partitions(cluster)) if late else late
    return {each: offset for each, offset in initial.items() if each not in late}


def ranges_between(
    start: Offsets,
    end: Offsets,
    subscription: Subscription,
    cluster: Cluster,
    loss: DataLoss,
    *,
    anew: Collection[str] = (),
) -> list[OffsetRange]:
    """What lies between the ends of two triggers.

    Partitions that the first does not have are new and are read from their first offset on. Those that the
    second does not have, or that are no longer there, are gone.

    Args:
        start: the end of the trigger before.
        end: that of this one.
        subscription: of the query.
        cluster: what is asked.
        loss: the rule of the query.
        anew: topics that were deleted and made again since the trigger before; their partitions are new.

    Raises:
        DataLossError: records are gone, or an end is below its start, and the query is to fail then.
    """
    replaced = sorted({each.topic for each in start}.intersection(anew))
    if replaced:
        loss.report(f"deleted and made anew since they were last read: {', '.join(replaced)}")
        start = {each: offset for each, offset in start.items() if each.topic not in replaced}
    gone = [each for each in start if each not in end]
    new = [each for each in end if each not in start]
    firsts = _firsts(new, subscription, cluster)
    gone += [each for each in new if each not in firsts]
    if gone:
        loss.report(f"no longer there: {', '.join(map(str, sorted(gone)))}")
    for where, first in firsts.items():
        if first > 0:
            loss.report(f"{where} is new and starts at {first} instead of 0")
    begins = {**start, **firsts}
    ranges = [OffsetRange(each, begins[each], offset) for each, offset in end.items() if each in begins]
    for each in ranges:
        if each.size < 0:
            loss.report(f"{each.where} was read up to {each.first} and now ends at {each.end}")
    return [each for each in ranges if each.size > 0]


def _firsts(
    new: Sequence[TopicPartition], subscription: Subscription, cluster: Cluster
) -> dict[TopicPartition, int]:
    if not new:
        return {}
    there = set(subscription.partitions(cluster))
    return earliest(cluster, [each for each in new if each in there])
