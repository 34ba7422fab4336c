"""What the sender knows of the cluster, which topics it has to know, and when to ask again. Pure.

Semantics are those of Java's ``ProducerMetadata``: refresh by age, a topic is forgotten when it was not used
for a while (KIP-526), missing topics are asked for alone, and repeated questions that bring nothing new come
at growing intervals (KIP-580).
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
    """One who waits for the next answer; what ``add_waiter`` returns."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Callable[[], None]) -> None:
        self.waiter = waiter


class Metadata:
    """The cluster as the last answer showed it. Guarded like the accumulator; ``cluster`` is read without.

    Args:
        max_age_ms: asked for again after this time.
        max_idle_ms: a topic that was not used for this time is forgotten.
        retry_backoff_ms: wait before asking again; doubles up to the maximum while nothing new comes.
        retry_backoff_max_ms: longest such wait.
        random: answers numbers from 0 to 1.

    Attributes:
        cluster: the present snapshot; another object after every answer.
        on_change: called under the guard, right after ``cluster`` was replaced; must not call back.
        silent: names the brokers that have not answered at all yet; empty if none.
        obstacle: says what keeps open connections from being used now; empty if nothing does.
        updated_at_ms: when ``cluster`` was replaced; infinity before the first answer.
        questions: how many were sent; see ``shown_since``.
        last_failure: the last thing that kept us from an answer, with address and cause; empty if none.
        last_error: the same as an error, where there is one.
        refusal: why no broker let us in, the last time that none did.
        refusals: how often that was; who waits fails when it changes.
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
        self._requested: frozenset[str] | None = None  # of the question that is on its way
        self._missing: set[str] = set()  # the snapshot does not show what a caller needs of them
        self._wanted = False  # somebody asked, and the question has not been sent yet
        self._brokers_wanted = False  # somebody waits for a first answer, whatever the topics
        self._stale = False  # the last answer did not help, or none came
        self._not_before_ms = -math.inf
        self._asked_at_ms = -math.inf  # for all topics in use
        self._trying_since_ms = math.inf  # for an answer; infinity while nobody tries
        self.updated_at_ms = math.inf
        self.questions = 0
        self._shown: dict[str, int] = {}  # which question brought what `cluster` shows of a topic
        self._waiters: list[MetadataWaiter] = []

    def request_topic(self, topic: str, now_ms: float) -> None:
        """The topic is about to be used, and ``cluster`` does not show what is needed of it.

        A topic that was not asked for before is asked for at once; the caller wakes the sender.
        """
        known = topic in self._last_used_ms
        self._last_used_ms[topic] = now_ms
        self._missing.add(topic)
        self._wanted = True
        if not known:
            self._not_before_ms = now_ms

    def request_brokers(self, now_ms: float) -> None:
        """Somebody waits for a first answer, about no topic in particular; the caller wakes the sender."""
        if not self._brokers_wanted:
            self._brokers_wanted = self._wanted = True
            self._not_before_ms = now_ms

    def request_update(self) -> None:
        """What we know is out of date; ask as soon as the backoff allows, if anybody needs it."""
        self._stale = True

    def request_missing(self, topics: Iterable[str], now_ms: float) -> None:
        """Batches wait for these topics, whose partitions have no known leader."""
        for topic in topics:
            self._last_used_ms[topic] = now_ms
            if self._requested is None or topic not in self._requested:  # else the answer may bring it
                self._stale = True

    def touch(self, topics: Iterable[str], now_ms: float) -> None:
        """These topics are in use."""
        for topic in topics:
            self._last_used_ms[topic] = now_ms

    @property
    def topics_in_use(self) -> Set[str]:
        """Those a question for all is for; a view that follows."""
        return self._last_used_ms.keys()

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiters)

    def due_in_ms(self, now_ms: float, *, needed: bool) -> float:
        """How long until the next question: 0 for now, infinity if none is due or one is on its way.

        Args:
            now_ms: the monotonic clock.
            needed: batches or callers wait for what it brings. If not, a cluster that does not answer, or
                that has nothing new to say, is asked again only after ``max_age_ms``.
        """
        if self._requested is not None or not (self._last_used_ms or self._brokers_wanted):
            return math.inf
        at_once = self._wanted or (self._stale and needed)
        asked_for_ms = now_ms if at_once else self._asked_at_ms + self._max_age_ms
        return max(0.0, max(asked_for_ms, self._not_before_ms) - now_ms)

    def trying_for_ms(self, now_ms: float) -> float:
        """A question is due now; how long it, or one before it, has been due without any answer."""
        self._trying_since_ms = min(self._trying_since_ms, now_ms)
        return now_ms - self._trying_since_ms

    def rebootstrap(self, now_ms: float) -> None:
        """Forgets brokers and leaders: the cluster is looked for anew (KIP-899). Topics stay known."""
        topics = {
            name: topic._replace(partitions=tuple(_leaderless(each) for each in topic.partitions))
            for name, topic in self.cluster.topics.items()
        }
        self.cluster = attrs.evolve(self.cluster, nodes={}, topics=topics, controller_id=-1)
        self.on_change()
        self._trying_since_ms = now_ms
        self._stale = True

    def begin(self, now_ms: float, in_use: Iterable[str]) -> list[str]:
        """A question is being sent now.

        Missing topics are asked for alone. When what we know is out of date, or old, all topics in use are
        asked for, and idle ones are forgotten, but not those ``in_use``.

        Returns:
            the topics to ask for, sorted.
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
        self.questions += 1
        return sorted(self._requested)

    def apply(self, found: ClusterMetadata, now_ms: float) -> None:
        """The answer is there. The caller runs `take_waiters` outside the guard."""
        before = self.cluster
        requested = self._requested or frozenset()
        self.cluster = follow(before, found, keep=self._last_used_ms.keys() - requested)
        self.on_change()
        self.updated_at_ms = now_ms
        self._requested = None
        shown = dict.fromkeys(requested, self.questions)
        self._shown = {topic: at for topic, at in self._shown.items() if topic in self._last_used_ms} | shown
        self._brokers_wanted = False
        self._trying_since_ms = math.inf
        complaints = self._complaints(requested)
        self.last_failure = " ".join(map(message_of, complaints))
        self.last_error = complaints[0] if complaints else None
        if self._last_used_ms.keys() - requested - self.cluster.topics.keys():
            self._wanted = True  # a topic came into use while the question was on its way
        if self.cluster != before and not self.last_failure:
            self._backoff.reset()
        self._not_before_ms = now_ms + self._backoff.next_ms()

    def shown_since(self, topic: str, question: int) -> bool:
        """Whether ``cluster`` shows the topic by the answer to a question sent later than ``question``."""
        return self._shown.get(topic, 0) > question

    def failed(self, reason: str, now_ms: float, error: BaseException | None = None) -> None:
        """The question brought no answer."""
        self._requested = None
        self._stale = True
        self._not_before_ms = now_ms + self._backoff.next_ms()
        self.last_failure, self.last_error = reason, error

    def note_failure(self, reason: str, now_ms: float, error: BaseException | None = None) -> None:
        """A broker could not be reached, or the connection to it broke; told to those who wait in vain."""
        self.last_failure, self.last_error = reason, error
        self._stale = True
        aged = now_ms >= self._asked_at_ms + self._max_age_ms
        if self._wanted or aged:  # that was the attempt; from now on it takes somebody who needs the answer
            self._wanted = False
            self._asked_at_ms = now_ms

    def refused(self, error: AuthenticationError) -> list[MetadataWaiter]:
        """No broker lets us in: those who wait now need not wait any longer. As ``take_waiters``."""
        self.refusal = error
        self.refusals += 1
        return self.take_waiters()

    def apply_leader(self, topic_partition: TopicPartition, leader: Node, leader_epoch: int) -> None:
        """A broker named the new leader in its answer (KIP-951); an older epoch than ours is ignored."""
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
        self.cluster = attrs.evolve(self.cluster, nodes=nodes, topics=topics)

    def add_waiter(self, waiter: Callable[[], None]) -> MetadataWaiter:
        """Calls ``waiter`` once, after the next answer. It must not block."""
        handle = MetadataWaiter(waiter)
        self._waiters.append(handle)
        return handle

    def remove_waiter(self, handle: MetadataWaiter) -> None:
        """Waits no more. Repeating it does nothing."""
        if handle in self._waiters:
            self._waiters.remove(handle)

    def take_waiters(self) -> list[MetadataWaiter]:
        """Everybody who waits; to be run with `run_waiters` outside the guard."""
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
    """Without an epoch, too: whatever is found next counts, even if it is the epoch of another cluster."""
    return info._replace(leader=-1, leader_epoch=-1)


def run_waiters(waiters: Iterable[MetadataWaiter]) -> None:
    """Calls them; one that raises does not keep the others from being called."""
    for handle in waiters:
        try:
            handle.waiter()
        except Exception:
            logger.exception("a waiter for metadata raised")


def follow(before: ClusterMetadata, found: ClusterMetadata, *, keep: Container[str]) -> ClusterMetadata:
    """The snapshot that follows ``before``.

    Args:
        before: what was known. Where it knows a newer leader of the same topic, it stays: brokers learn of a
            new leader at different times.
        found: what the broker answered; its topics replace those of ``before``.
        keep: topics that were not asked for and stay as they are.
    """
    topics = {name: info for name, info in before.topics.items() if name in keep}
    for name, info in found.topics.items():
        topics[name] = _follow_topic(before.topics.get(name), info)
    return attrs.evolve(found, topics=topics)


def _follow_topic(before: TopicInfo | None, found: TopicInfo) -> TopicInfo:
    if before is None or before.topic_id != found.topic_id:
        return found  # the first, or another topic of the same name: leader epochs start again
    known = before.partitions
    return found._replace(
        partitions=tuple(
            known[each.partition] if each.partition < len(known) and _older(each, known) else each
            for each in found.partitions
        ),
    )


def _older(found: PartitionInfo, known: tuple[PartitionInfo, ...]) -> bool:
    return 0 <= found.leader_epoch < known[found.partition].leader_epoch
