"""Waiting for a first broker, where ``bootstrap_timeout_ms`` asks for that."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from splashdam.client.sending.lookup import MetadataWait
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import NoBrokersAvailable

if TYPE_CHECKING:
    from splashdam.client.running.core import ProducerCore


class BootstrapWait:
    """Waits until a broker has answered who the cluster's brokers are. Decides and never waits itself.

    Attributes:
        waits_for: what has to happen before the next ``step``.
        deadline_ms: when waiting ends, by the monotonic clock.
    """

    __slots__ = ("_core", "_refusals", "_timeout_ms", "deadline_ms", "waits_for")

    def __init__(self, core: ProducerCore, timeout_ms: float) -> None:
        self._core = core
        self._refusals = core.metadata.refusals
        self._timeout_ms = timeout_ms
        self.deadline_ms = core.clock.now_ms() + timeout_ms
        self.waits_for: MetadataWait | None = None

    def step(self) -> ClusterMetadata | None:
        """The cluster; None: wait for ``waits_for`` and try again.

        Raises:
            AuthenticationError: every broker was tried, and none lets us in.
            NoBrokersAvailable: ``deadline_ms`` has passed.
            IllegalStateError: the producer was closed meanwhile.
        """
        intake, metadata = self._core.intake, self._core.metadata
        cluster = metadata.cluster
        if cluster.nodes:
            return cluster
        if self._core.finished.opened:
            raise self._core.refusal()
        if metadata.refusals != self._refusals and metadata.refusal is not None:
            raise copy(metadata.refusal)
        now_ms = self._core.clock.now_ms()
        if now_ms >= self.deadline_ms:
            raise NoBrokersAvailable(
                f"no broker has answered within {self._timeout_ms:g} ms: {intake.last_failure()}"
            ) from metadata.last_error
        intake.guard.run(metadata.request_brokers, now_ms)
        intake.wake()
        self.waits_for = MetadataWait(intake, cluster, self._refusals, accepted=False)
        return None

    def cancel(self) -> None:
        """Nothing is held while it waits."""


def bootstrap_wait(core: ProducerCore) -> BootstrapWait | None:
    """What a producer waits for before it can be used, if it has to."""
    timeout_ms = core.settings.bootstrap_timeout_ms
    if timeout_ms is None or core.settings.api_version not in (None, "auto"):
        return None
    return BootstrapWait(core, timeout_ms)
