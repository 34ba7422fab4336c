"""The controller's journal: a snapshot of the cluster's state as JSON, and a line for each change since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from splashdam.embedded_broker.controller.state import (
    BrokerState,
    ClusterChange,
    ClusterState,
    PartitionState,
    Resource,
)
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.change_log import ChangeLog
from splashdam.storage.directories.partition_metadata import format_uuid, parse_uuid
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import unusable_file_error
from splashdam.storage.manager.topic_registry import Topic

if TYPE_CHECKING:
    from splashdam.storage.manager.log_manager import LogManager

FILE_NAME = "splashdam-cluster.json"
CHANGES_NAME = "splashdam-cluster.changes"
_VERSION = 1
_MOST_CHANGES = 10_000
"""After so many changes a new snapshot is written."""


class ChangeStore(Protocol):
    """Stores changes before they take effect."""

    def keep(self, change: ClusterChange, before: ClusterState) -> None:
        """Make a change durable.

        Args:
            change: the change.
            before: the state before it.

        Raises:
            KafkaStorageError: the write failed; the change has not happened.
        """
        ...


class Journal:
    """The journal of a cluster: two files in its directory.

    Args:
        files: the file system.
        directory: an existing directory.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._changes_path = f"{directory}/{CHANGES_NAME}"
        self._changes = ChangeLog(files, self._changes_path)
        self._generation = 0

    def read(self) -> ClusterState:
        """Return the stored state; an empty one if there are no files.

        Raises:
            KafkaStorageError: a file cannot be read or parsed.
        """
        state = ClusterState()
        data = self._files.read_bytes(self._path)
        if data is not None:
            with _makes_sense(self._path):
                content = json.loads(data)
                if content.pop("version") != _VERSION:
                    raise unusable_file_error(self._path, f"is not of version {_VERSION}")
                self._generation = int(content.pop("generation"))
                state.apply(decode_change(content))
        changes = self._changes.read(self._generation)
        with _makes_sense(self._changes_path):
            for change in changes:
                state.apply(decode_change(change))
        if changes:
            self._rewrite(state)
        return state

    def keep(self, change: ClusterChange, before: ClusterState) -> None:
        if self._changes.must_rewrite or self._changes.length >= _MOST_CHANGES:
            self._rewrite(before)
        self._changes.append(encode_change(change))

    def _rewrite(self, state: ClusterState) -> None:
        generation = self._generation + 1
        content = {"version": _VERSION, "generation": generation, **encode_change(state.as_change())}
        # Before the changes are begun anew: after a crash in between they name the old generation, and do not
        # count.
        self._files.write_atomic(self._path, (json.dumps(content, sort_keys=True) + "\n").encode())
        self._generation = generation
        self._changes.begin(generation)

    def close(self) -> None:
        """Close the files; everything in them is synced."""
        self._changes.close()


class DirectoryJournal:
    """The journal of a single broker's controller: the data directory itself.

    Only options of resources are stored here. Topics are created by the broker when it applies the change,
    and the state is read back from the directory if that fails (docs/decisions/cluster.md).

    Args:
        logs: the broker's logs.
    """

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def read(self, brokers: Mapping[int, BrokerState]) -> ClusterState:
        """Return the state that the directory holds, with ``brokers``, which are not stored in it."""
        logs, node_id = self._logs, self._logs.identity.node_id
        state = ClusterState(brokers)
        state.apply(
            ClusterChange(
                topics=logs.topics,
                partitions={
                    each: PartitionState((node_id,), (node_id,), node_id, max(log.leader_epoch, 0))
                    for each, log in logs.logs.items()
                },
                resources={Resource(*each): kept for each, kept in logs.registry.resources.items()},
            )
        )
        return state

    def keep(self, change: ClusterChange, before: ClusterState) -> None:
        if change.resources:
            resources = {(each.kind, each.name): kept for each, kept in change.resources.items()}
            self._logs.registry.put_resources(resources)


@contextmanager
def _makes_sense(path: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise unusable_file_error(path, f"makes no sense ({error!r})") from error


def encode_change(change: ClusterChange) -> dict[str, Any]:
    """Return a change as a JSON object; empty parts are left out."""
    partitions: dict[str, dict[str, Any]] = {}
    for (topic, number), state in change.partitions.items():
        partitions.setdefault(topic, {})[str(number)] = list(state)
    parts = {
        "topics": [_topic_fields(topic) for topic in change.topics.values()],
        "deleted": [_topic_fields(topic) for topic in change.deleted],
        "partitions": partitions,
        "brokers": [
            [each.node_id, each.epoch, each.listeners, each.is_fenced, each.is_shutting_down, each.rack]
            for each in change.brokers.values()
        ],
        "resources": [[*resource, dict(kept)] for resource, kept in change.resources.items()],
    }
    return {name: part for name, part in parts.items() if part}


def decode_change(content: dict[str, Any]) -> ClusterChange:
    """Return the change that ``encode_change`` encoded.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the object is not an encoded change.
    """
    topics = [_topic(fields) for fields in content.get("topics", ())]
    return ClusterChange(
        topics={topic.name: topic for topic in topics},
        deleted=tuple(_topic(fields) for fields in content.get("deleted", ())),
        partitions={
            TopicPartition(topic, int(number)): _partition(fields)
            for topic, partitions in content.get("partitions", {}).items()
            for number, fields in partitions.items()
        },
        brokers={fields[0]: _broker(*fields) for fields in content.get("brokers", ())},
        resources={Resource(kind, name): kept for kind, name, kept in content.get("resources", ())},
    )


def _topic_fields(topic: Topic) -> list[Any]:
    return [topic.name, format_uuid(topic.topic_id), list(topic.partitions), dict(topic.configs)]


def _topic(fields: list[Any]) -> Topic:
    name, topic_id, partitions, configs = fields
    return Topic(name, parse_uuid(topic_id), tuple(partitions), configs)


def _partition(fields: list[Any]) -> PartitionState:
    replicas, isr, leader, leader_epoch, partition_epoch, adding, removing = fields
    return PartitionState(
        tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch, tuple(adding), tuple(removing)
    )


def _broker(node_id: int, epoch: int, listeners: dict[str, list[Any]], *others: Any) -> BrokerState:
    addresses = {name: Address(*address) for name, address in listeners.items()}
    return BrokerState(node_id, epoch, addresses, *others)  # older journals end before the rack
