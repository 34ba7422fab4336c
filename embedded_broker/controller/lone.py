"""The controller of a broker that is alone: it leads what is in its directory, which says what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.controller.controller import Controller, IsUnclean
from splashdam.embedded_broker.controller.state import ClusterChange, ClusterState, PartitionState, Resource
from splashdam.model.broker_errors import BrokerResponseError

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.producer_ids import HandsOutIds
    from splashdam.storage.manager.log_manager import LogManager


class LoneController(Controller):
    """Controls the broker of one directory.

    Args:
        logs: the directory.
        producer_ids: as ``Controller``.
        is_unclean: as ``Controller``; it never matters.
    """

    is_alone = True

    def __init__(self, logs: LogManager, producer_ids: HandsOutIds, is_unclean: IsUnclean) -> None:
        super().__init__(_InDirectory(logs), producer_ids, is_unclean)
        self._logs = logs
        self._look()

    def _look(self) -> None:
        """What there is is what the directory says."""
        node_id = self._logs.identity.node_id
        self.state = ClusterState(self.state.brokers)
        self.state.apply(
            ClusterChange(
                topics=self._logs.topics,
                partitions={
                    each: PartitionState((node_id,), (node_id,), node_id, max(log.leader_epoch, 0))
                    for each, log in self._logs.logs.items()
                },
                resources={Resource(*each): kept for each, kept in self._logs.registry.resources.items()},
            )
        )

    def _commit(self, change: ClusterChange) -> None:
        try:
            super()._commit(change)
        except BrokerResponseError:
            self._look()  # the broker could not do it, or not all of it
            raise


class _InDirectory:
    """Keeps options beside the topics, and nothing else: the broker makes topics last when it is told."""

    def __init__(self, logs: LogManager) -> None:
        self._registry = logs.registry

    def keep(self, change: ClusterChange, before: ClusterState) -> None:
        """Makes a change durable."""
        if change.resources:
            resources = {(each.kind, each.name): kept for each, kept in change.resources.items()}
            self._registry.put_resources(resources)
