"""The cluster metadata: the current snapshot, topics in use, and when to request an update. Pure.

Semantics are those of Java's ``ProducerMetadata``: refresh by age, drop topics that are not used for a while
(KIP-526), request missing topics alone, back off while responses bring nothing new (KIP-580).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable, Set

import attrs

from splashdam.accumulator.backoff import Backoff
from splashdam.model.broker_errors import error_class, error_for
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import AuthenticationError, KafkaError, message_of
from splashdam.model.values import TopicPartition

logger = logging.getLogger("splashdam.sender")


class MetadataWaiter:
    """A callback for the next metadata response; returned by ``add_waiter``."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Callable[[], None]) -> None:
        self.waiter = waiter


class Metadata:
    """The cluster as of the last response. Protected by the guard; ``cluster`` may be read without it.

    Args:
        max_age_ms: refresh after this time.
        max_idle_ms: a topic that was not used for this time is forgotten.
        retry_backoff_ms: wait before the next request; doubles up to the maximum while nothing new comes.
        retry_backoff_max_ms: longest such wait.
        random: answers numbers from 0 to 1.

    Attributes:
        cluster: the current snapshot; another object after every response.
        on_change: called under the guard, right after ``cluster`` was replaced; must not call back.
        silent: names the brokers that have not answered yet; empty if none.
        obstacle: says why open connections cannot be used now (throttling); empty if they can.
        updated_at_ms: when ``cluster`` was replaced; infinity before the first response.
        requests: how many were sent; see ``shown_since``.
        last_failure: why the last request failed, with address and cause; empty if it did not.
        last_error: the same as an error, where there is one.
        refusal: the authentication error of the last time that every broker refused us.
        refusals: how often that happened; waiting callers fail when it changes.
    """

    def __init__(
        self,
        *,
        max_age_ms: float = 300_000,
        max_idle_ms: float = 300_000,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1_000,
        random: Callable[[], float],
    ) -> None:
        self.cluster = ClusterMetadata()
        self.last_failure = ""
        self.last_error: BaseException | None = None
        self.refusal: AuthenticationError | None = None
        self.refusals = 0
        self.on_change: Callable[[], None] = lambda: None
        self.obstacle: Callable[[], str] = str
        self.silent: Callable[[], str] = str
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, random)
        self._last_used_ms: dict[str, float] = {}
        self._requested: frozenset[str] | None = None  # topics of the request in flight
        self._missing: set[str] = set()  # topics or partitions that the snapshot does not show
        self._wanted = False  # a request was asked for and is not sent yet
        self._brokers_wanted = False  # a caller waits for a first response, whatever the topics
        self._stale = False  # the last response is out of date, or none came
        self._not_before_ms = -math.inf
        self._asked_at_ms = -math.inf  # the last request for all topics in use
        self._trying_since_ms = math.inf  # first request without response; infinity if none
        self.updated_at_ms = math.inf
        self.requests = 0
        self._shown: dict[str, int] = {}  # number of the request that brought each topic
        self._waiters: list[MetadataWaiter] = []

    def request_topic(self, topic: str, now_ms: float) -> None:
        """Request a topic that ``cluster`` does not show, or not with the partition that is needed.

        A topic that was not in use before skips the backoff. The caller wakes the sender.
        """
        known = topic in self._last_used_ms
        self._last_used_ms[topic] = now_ms
        self._missing.add(topic)
        self._wanted = True
        if not known:
            self._not_before_ms = now_ms

    def request_brokers(self, now_ms: float) -> None:
        """Request the brokers for a caller that waits for a first response. The caller wakes the sender."""
        if not self._brokers_wanted:
            self._brokers_wanted = self._wanted = True
            self._not_before_ms = now_ms

    def request_update(self) -> None:
        """Mark the metadata as stale: update once the backoff allows it, if batches or callers need it."""
        self._stale = True

    def request_missing(self, topics: Iterable[str], now_ms: float) -> None:
        """Request topics whose queued batches have no known partition leader."""
        for topic in topics:
            self._last_used_ms[topic] = now_ms
            if self._requested is None or topic not in self._requested:  # otherwise the response may bring it
                self._stale = True

    def touch(self, topics: Iterable[str], now_ms: float) -> None:
        """Mark topics as in use."""
        for topic in topics:
            self._last_used_ms[topic] = now_ms

    @property
    def topics_in_use(self) -> Set[str]:
        """The topics that a full update requests; a live view."""
        return self._last_used_ms.keys()

    @property
    def has_waiters(self) -> bool:
        """Whether callers wait for a response."""
        return bool(self._waiters)

    def due_in_ms(self, now_ms: float, *, needed: bool) -> float:
        """Milliseconds until the next request: 0 for now, infinity if none is due or one is in flight.

        Args:
            now_ms: the monotonic clock.
            needed: batches or callers wait for the response. If not, failed or unchanged metadata are
                requested again only after ``max_age_ms``.
        """
        if self._requested is not None or not (self._last_used_ms or self._brokers_wanted):
            return math.inf
        at_once = self._wanted or (self._stale and needed)
        asked_for_ms = now_ms if at_once else self._asked_at_ms + self._max_age_ms
        return max(0.0, max(asked_for_ms, self._not_before_ms) - now_ms)

    def trying_for_ms(self, now_ms: float) -> float:
        """How long requests have been due without any response."""
        self._trying_since_ms = min(self._trying_since_ms, now_ms)
        return now_ms - self._trying_since_ms

    def rebootstrap(self, now_ms: float) -> None:
        """Drop brokers and leaders, so that the bootstrap addresses are used again (KIP-899). Keep topics."""
        topics = {
            name: topic._replace(partitions=tuple(_leaderless(each) for each in topic.partitions))
            for name, topic in self.cluster.topics.items()
        }
        self.cluster = attrs.evolve(self.cluster, nodes={}, topics=topics, controller_id=-1)
        self.on_change()
        # So that the next one comes after the same time again, and not in the next turn.
        self._trying_since_ms = now_ms
        self._stale = True

    def begin(self, now_ms: float, in_use: Iterable[str]) -> list[str]:
        """Start a request.

        Missing topics are requested alone. Once the metadata are stale or older than ``max_age_ms``, all
        topics in use are requested, and idle ones are dropped, except those ``in_use``.

        Returns:
            the topics to request, sorted.
        """
        self.touch(in_use, now_ms)
        missing = self._missing | (self._last_used_ms.keys() - self.cluster.topics.keys())
        aged = now_ms >= self._asked_at_ms + self._max_age_ms
        if self._wanted and missing and not self._stale and not aged:
            self._requested = frozenset(missing)
        else:
            oldest_ms = now_ms - self._max_idle_ms
            self._last_used_ms = {topic: at for topic, at in self._last_used_ms.items() if at > oldest_ms}
            self._requested = frozenset(self._last_used_ms)
            self._stale = False
            self._asked_at_ms = now_ms
        self._wanted = False
        self._missing.clear()
        self.requests += 1
        return sorted(self._requested)

    def apply(self, found: ClusterMetadata, now_ms: float) -> None:
        """Apply a response. The caller runs `take_waiters` outside the guard."""
        before = self.cluster
        requested = self._requested or frozenset()
        self.cluster = follow(before, found, keep=self._last_used_ms.keys() - requested)
        self.on_change()
        self.updated_at_ms = now_ms
        self._requested = None
        shown = dict.fromkeys(requested, self.requests)
        self._shown = {topic: at for topic, at in self._shown.items() if topic in self._last_used_ms} | shown
        self._brokers_wanted = False
        self._trying_since_ms = math.inf
        complaints = self._complaints(requested)
        self.last_failure = " ".join(map(message_of, complaints))
        self.last_error = complaints[0] if complaints else None
        if self._last_used_ms.keys() - requested - self.cluster.topics.keys():
            self._wanted = True  # a topic came into use while the request was in flight
        # Neither an error nor the same as before is progress: both back off.
        if self.cluster != before and not self.last_failure:
            self._backoff.reset()
        # After a good response, too: while responses bring nothing new, requests become rare (KIP-580).
        self._not_before_ms = now_ms + self._backoff.next_ms()

    def shown_since(self, topic: str, request: int) -> bool:
        """Whether ``cluster`` shows the topic from a response to a later request than number ``request``."""
        return self._shown.get(topic, 0) > request

    def failed(self, reason: str, now_ms: float, error: BaseException | None = None) -> None:
        """Handle a request that failed."""
        self._requested = None
        self._stale = True
        self._not_before_ms = now_ms + self._backoff.next_ms()
        self.last_failure, self.last_error = reason, error

    def note_failure(self, reason: str, now_ms: float, error: BaseException | None = None) -> None:
        """Record a failed or lost connection; timeouts of waiting callers name it."""
        self.last_failure, self.last_error = reason, error
        self._stale = True
        aged = now_ms >= self._asked_at_ms + self._max_age_ms
        if self._wanted or aged:  # this was the attempt; the next one needs a batch or caller
            self._wanted = False
            self._asked_at_ms = now_ms

    def refused(self, error: AuthenticationError) -> list[MetadataWaiter]:
        """Record that every broker refused us; return the waiters, as ``take_waiters``."""
        self.refusal = error
        self.refusals += 1
        return self.take_waiters()

    def apply_leader(self, topic_partition: TopicPartition, leader: Node, leader_epoch: int) -> None:
        """Apply the leader that a ProduceResponse names (KIP-951); ignore an older leader epoch."""
        topic = self.cluster.topics.get(topic_partition.topic)
        known = self.cluster.partition(topic_partition)
        if topic is None or known is None or leader_epoch <= known.leader_epoch:
            return
        partitions = list(topic.partitions)
        partitions[topic_partition.partition] = known._replace(
            leader=leader.node_id, leader_epoch=leader_epoch
        )
        topics = {**self.cluster.topics, topic.name: topic._replace(partitions=tuple(partitions))}
        nodes = {**self.cluster.nodes, leader.node_id: leader}
        # Without `on_change`: the partitions are the same, so the published lanes stay valid.
        self.cluster = attrs.evolve(self.cluster, nodes=nodes, topics=topics)

    def add_waiter(self, waiter: Callable[[], None]) -> MetadataWaiter:
        """Have ``waiter`` called once, after the next response. It must not block."""
        handle = MetadataWaiter(waiter)
        self._waiters.append(handle)
        return handle

    def remove_waiter(self, handle: MetadataWaiter) -> None:
        """Remove a waiter; one that is gone already is ignored."""
        if handle in self._waiters:
            self._waiters.remove(handle)

    def take_waiters(self) -> list[MetadataWaiter]:
        """Remove and return all waiters, to be run with `run_waiters` outside the guard."""
        taken, self._waiters = self._waiters, []
        return taken

    def _complaints(self, requested: Iterable[str]) -> list[KafkaError]:
        errors: list[KafkaError] = []
        for topic in sorted(requested):
            info = self.cluster.topics.get(topic)
            if info is not None and info.error_code:
                text = f"topic {topic!r}: {error_class(info.error_code).__doc__}"
                errors.append(error_for(info.error_code, text))
        return errors


def _leaderless(info: PartitionInfo) -> PartitionInfo:
    """Drop the leader epoch, too, since the bootstrap addresses may lead to another cluster."""
    return info._replace(leader=-1, leader_epoch=-1)


def run_waiters(waiters: Iterable[MetadataWaiter]) -> None:
    """Call all of them, even if one raises."""
    for handle in waiters:
        try:
            handle.waiter()
        except Exception:
            logger.exception("a waiter for metadata raised")


def follow(before: ClusterMetadata, found: ClusterMetadata, *, keep: Container[str]) -> ClusterMetadata:
    """Merge a response into the snapshot.

    Args:
        before: the snapshot. Its leaders stay where their epoch is newer, since brokers learn of a new
            leader at different times.
        found: the response; its topics replace those of ``before``.
        keep: topics that were not requested and stay as they are.
    """
    topics = {name: info for name, info in before.topics.items() if name in keep}
    for name, info in found.topics.items():
        topics[name] = _follow_topic(before.topics.get(name), info)
    return attrs.evolve(found, topics=topics)


def _follow_topic(before: TopicInfo | None, found: TopicInfo) -> TopicInfo:
    if before is None or before.topic_id != found.topic_id:
        return found  # new, or recreated under the same name: leader epochs start again
    known = before.partitions
    return found._replace(
        partitions=tuple(
            known[each.partition] if each.partition < len(known) and _older(each, known) else each
            for each in found.partitions
        ),
    )


def _older(found: PartitionInfo, known: tuple[PartitionInfo, ...]) -> bool:
    return 0 <= found.leader_epoch < known[found.partition].leader_epoch
