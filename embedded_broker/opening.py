"""What there must be before a broker can run: its directory, opened, and a controller."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.topics import allows_unclean_election, topic_settings
from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.journal import CHANGES_NAME, FILE_NAME, DirectoryJournal
from splashdam.embedded_broker.controller.leadership import ClusterView, Leadership, begin_leader_epochs
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.net.clock import Clock
from splashdam.storage.directories.identity import claim_directory
from splashdam.storage.files.disk import Files
from splashdam.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from splashdam.embedded_broker.replication.replica_manager import Membership

_log = logging.getLogger(__name__)


def open_directory(
    path: str | os.PathLike[str],
    files: Files,
    clock: Clock,
    settings: BrokerSettings,
    *,
    membership: Membership | None,
    leadership: Leadership | None,
) -> tuple[LogManager, Controller]:
    """Opens a data directory for a broker; a controller for it alone where none is given.

    Args:
        path: the directory.
        files: the file system.
        clock: where the broker reads the time.
        settings: the broker's.
        membership: in the cluster that the broker belongs to.
        leadership: who leads which partition, where that is not for the controller to say.

    Raises:
        IllegalStateError: the directory is in use.
        KafkaStorageError: it cannot be used, or belongs to another cluster.
    """
    for name, reason in settings.without_effect().items():
        _log.warning("%s has no effect here: %s", name, reason)
    path, view = os.path.abspath(path), leadership
    if membership is not None:
        claim_directory(files, path, settings.node_id, membership.controller.cluster_id)
        view = view or ClusterView(membership.controller, settings.node_id)
    elif _is_of_a_cluster(files, path):
        raise KafkaStorageError(
            f"{path} is the directory of a cluster; open it with EmbeddedCluster, or one of its brokers "
            f"alone: {path}/broker-1"
        )
    logs = LogManager.open(
        files,
        path,
        now_ms=clock.wall_ms(),
        settings_for=partial(topic_settings, settings.topic_defaults),
        node_id=settings.node_id,
        settings=settings.directories,
        log_dirs=[os.path.join(path, each.strip()) for each in settings.log_dirs.split(",") if each.strip()],
        hosts=partial(view.hosts, settings.node_id) if view else lambda _: True,
    )
    try:
        if leadership is not None:
            begin_leader_epochs(leadership, logs)
        return logs, membership.controller if membership else _own_controller(logs, settings)
    except BaseException:
        logs.close()
        raise


def _is_of_a_cluster(files: Files, path: str) -> bool:
    """A path that cannot be looked at is none; the attempt to use it says why."""
    with suppress(KafkaStorageError):
        return any(files.size_bytes(f"{path}/{name}") is not None for name in (FILE_NAME, CHANGES_NAME))
    return False


def _own_controller(logs: LogManager, settings: BrokerSettings) -> Controller:
    """One for the broker of this directory, which alone vouches for its producer ids."""
    known_ids = (entry.producer_id for log in logs.logs.values() for entry in log.producers)
    ids = ProducerIds(logs.files, logs.root, above=max(known_ids, default=-1))
    is_unclean = partial(allows_unclean_election, settings.topic_defaults)
    return Controller(DirectoryJournal(logs), ids, is_unclean)
