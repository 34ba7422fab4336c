"""Lookups in the metadata: a topic, one of its partitions, or a first broker; missing ones are requested."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

from splashdam.client.sending.arguments import check_partition, check_topic_name
from splashdam.client.waiters import Wake
from splashdam.model.broker_errors import error_class, error_for
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import (
    IllegalArgumentError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    SettingText,
)

if TYPE_CHECKING:
    from splashdam.client.partitioning.placing import TopicRoute
    from splashdam.client.sending.intake import RecordIntake


MISSING_PARTITION_MS = 10_000
"""How long a non-blocking lookup of a missing partition is remembered until the caller tries again."""


class TopicLookup:
    """Looks up a topic, and a partition of it if one is given. Never waits itself.

    A partition that is missing in the metadata may have been added since. So the lookup requests an update
    once, and fails if that does not show the partition either.

    Attributes:
        accepted: the record was accepted before the producer was closed, so the lookup continues.
        waits_for: what has to happen before the next ``step``.
        deadline_ms: end of the wait, by the monotonic clock.
    """

    __slots__ = (
        "_intake",
        "_partition",
        "_patient",
        "_refusals",
        "_requests",
        "_topic",
        "accepted",
        "deadline_ms",
        "waits_for",
    )

    def __init__(
        self,
        intake: RecordIntake[Any],
        topic: str,
        partition: int | None,
        deadline_ms: float,
        *,
        patient: bool = True,
    ) -> None:
        """Check the arguments.

        Args:
            intake: of the producer.
            topic: the topic.
            partition: a partition that must exist; None for any.
            deadline_ms: end of the wait.
            patient: False for a caller that does not wait; its next call gets the result of the update.

        Raises:
            TypeError: the topic is not a str, or the partition not an int.
            ValueError: the topic name or the partition number is illegal.
        """
        self._intake = intake
        self._topic = check_topic_name(topic)
        self._partition = -1 if partition is None else check_partition(partition)
        self._patient = patient
        # Only the answer to a later request can show a partition that was added since.
        self._requests = intake.metadata.requests
        self._refusals = intake.metadata.refusals
        self.accepted = False
        self.deadline_ms = deadline_ms
        self.waits_for: MetadataWait | None = None

    def step(self) -> TopicRoute | None:
        """Return the topic; None: wait for ``waits_for`` and try again.

        Raises:
            BrokerResponseError: the cluster refuses the topic with a non-retriable error.
            AuthenticationError: every broker refused our credentials.
            IllegalArgumentError: the topic has no such partition, after an update of the metadata.
            KafkaTimeoutError: topic or partition are unknown, and ``deadline_ms`` has passed.
            IllegalStateError: the producer was closed.
        """
        intake = self._intake
        refuse = intake.refuse_lookup
        if refuse is not None and not self.accepted:
            raise refuse()
        # Before the lookup: a response that comes after this line ends the wait at once (`MetadataWait`).
        cluster = intake.metadata.cluster
        route = intake.route(self._topic)
        if route is not None and self._partition < route.count:
            return route
        info = cluster.topics.get(self._topic)
        if info is not None and info.error_code and not error_class(info.error_code).retriable:
            raise error_for(info.error_code, f"topic {self._topic!r} cannot be used")
        metadata = intake.metadata
        if metadata.refusals != self._refusals and metadata.refusal is not None:
            raise copy(metadata.refusal)  # a copy: other callers raise it with their own tracebacks
        now_ms = intake.clock.now_ms()
        if route is not None:
            self._check_partition(route.count, now_ms)
        if now_ms >= self.deadline_ms:
            raise self._too_late(route)
        intake.guard.run(intake.metadata.request_topic, self._topic, now_ms)
        intake.wake()
        self.waits_for = MetadataWait(intake, cluster, self._refusals, accepted=self.accepted)
        return None

    def cancel(self) -> None:
        """Does nothing: a lookup holds no resources."""

    def _check_partition(self, count: int, now_ms: float) -> None:
        """Raise if an up-to-date answer shows that the partition is missing."""
        intake = self._intake
        requests = self._requests
        if not self._patient:
            requests = intake.missing_partitions.requests_at_first_lookup(self._topic, requests, now_ms)
        if not intake.metadata.shown_since(self._topic, requests):
            return
        intake.missing_partitions.forget(self._topic)
        raise no_such_partition(self._topic, self._partition, count)

    def _too_late(self, route: TopicRoute | None) -> KafkaTimeoutError:
        error = KafkaTimeoutError(self._why(route))
        cause = self._intake.metadata.last_error
        if route is None and cause is not None:
            error.__cause__ = cause
            error.remedy = getattr(cause, "remedy", "") or error.remedy
        return error

    def _why(self, route: TopicRoute | None) -> str:
        waited = f"within {self._intake.max_block_ms:g} ms"
        if route is not None:
            return (
                f"partition {self._partition} of topic {self._topic!r} did not appear {waited}:"
                f" the topic has {route.count} partitions"
            )
        return SettingText(
            "topic {topic!r} did not appear in the metadata {waited}: {failure}",
            topic=self._topic,
            waited=waited,
            failure=self._intake.last_failure(),
        )


class BootstrapLookup:
    """Looks for a first metadata response. Never waits itself.

    Attributes:
        waits_for: what has to happen before the next ``step``.
        deadline_ms: when waiting ends, by the monotonic clock.
    """

    __slots__ = ("_intake", "_refusals", "_timeout_ms", "deadline_ms", "waits_for")

    def __init__(self, intake: RecordIntake[Any], timeout_ms: float) -> None:
        self._intake = intake
        self._refusals = intake.metadata.refusals
        self._timeout_ms = timeout_ms
        self.deadline_ms = intake.clock.now_ms() + timeout_ms
        self.waits_for: MetadataWait | None = None

    def step(self) -> ClusterMetadata | None:
        """Return the cluster; None: wait for ``waits_for`` and try again.

        Raises:
            AuthenticationError: every broker refused our credentials.
            NoBrokersAvailable: ``deadline_ms`` has passed.
            IllegalStateError: the producer was closed.
        """
        intake = self._intake
        metadata = intake.metadata
        cluster = metadata.cluster
        if cluster.nodes:
            return cluster
        refuse = intake.refuse_lookup
        if refuse is not None:
            raise refuse()
        if metadata.refusals != self._refusals and metadata.refusal is not None:
            raise copy(metadata.refusal)
        now_ms = intake.clock.now_ms()
        if now_ms >= self.deadline_ms:
            raise NoBrokersAvailable(
                SettingText(
                    "no broker has answered within {timeout_ms:g} ms: {failure}",
                    timeout_ms=self._timeout_ms,
                    failure=intake.last_failure(),
                )
            ) from metadata.last_error
        intake.guard.run(metadata.request_brokers, now_ms)
        intake.wake()
        self.waits_for = MetadataWait(intake, cluster, self._refusals, accepted=False)
        return None

    def cancel(self) -> None:
        """Does nothing: a lookup holds no resources."""


def no_such_partition(topic: str, partition: object, count: int, said_by: str = "") -> IllegalArgumentError:
    """Return the error for a missing partition."""
    error = IllegalArgumentError(f"{said_by}topic {topic!r} has no partition {partition}; it has {count}")
    error.remedy = f"choose one from 0 to {count - 1}, or give the topic more partitions"
    return error


class MissingPartitions:
    """Partitions that non-blocking callers did not find.

    Such a caller does not wait for the update of the metadata that would show a partition added since. So the
    number of metadata requests at its first call is kept for its next one, which then knows whether an update
    has arrived between the two.
    """

    __slots__ = ("_first_lookups",)

    def __init__(self) -> None:
        self._first_lookups: dict[str, tuple[int, float]] = {}

    def requests_at_first_lookup(self, topic: str, requests: int, now_ms: float) -> int:
        """Return how many metadata requests had been sent when the topic's partition was first missed."""
        first = self._first_lookups.get(topic)
        if first is None or now_ms - first[1] > MISSING_PARTITION_MS:
            first = self._first_lookups[topic] = (requests, now_ms)
        return first[0]

    def forget(self, topic: str) -> None:
        """Forget the topic after its caller got the answer."""
        self._first_lookups.pop(topic, None)


class MetadataWait:
    """Waits for a new metadata snapshot, an authentication failure, or the producer's end."""

    __slots__ = ("_accepted", "_intake", "_refusals", "_seen")

    what: ClassVar[str] = "metadata"

    def __init__(
        self, intake: RecordIntake[Any], seen: ClusterMetadata, refusals: int, *, accepted: bool
    ) -> None:
        self._accepted = accepted
        self._intake = intake
        self._refusals = refusals
        self._seen = seen

    def subscribe(self, wake: Wake) -> object | None:
        intake = self._intake
        handle = intake.guard.run(self._add_waiter, wake)
        if handle is None:
            return None
        # A request may have failed since `step`: without a waiter the sender would not repeat it.
        intake.wake()
        return handle

    def _add_waiter(self, wake: Wake) -> object | None:
        intake = self._intake
        refused = intake.refuse_lookup is not None and not self._accepted
        metadata = intake.metadata
        # Under the guard, in which responses are applied: none can come between this look and the waiter.
        if metadata.cluster is not self._seen or metadata.refusals != self._refusals or refused:
            return None
        return metadata.add_waiter(wake)

    def unsubscribe(self, handle: Any) -> None:
        self._intake.guard.run(self._intake.metadata.remove_waiter, handle)
