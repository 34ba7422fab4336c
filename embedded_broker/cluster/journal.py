"""What a controller must not forget, on disk: one line for each change, each synced before it counts.

A line is the CRC-32C of a JSON object, and the object. At the start, when there are many more lines than it
takes, the file is replaced by one line that says it all. A last line that is torn was never acknowledged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from splashdam.embedded_broker.cluster.state import BrokerState, ClusterChange, PartitionState, Resource
from splashdam.embedded_broker.registry import Address
from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.log_file import LogFile, unusable_file
from splashdam.embedded_broker.storage.partition_metadata import format_uuid, parse_uuid
from splashdam.embedded_broker.storage.topic_registry import Topic
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.record.checksum import crc32c

_log = logging.getLogger(__name__)


class Journal:
    """The changes of a cluster in a file.

    Args:
        files: the file system.
        path: of the file; its directory exists. It is made with the first change.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._file: LogFile | None = None
        self._is_doubtful = False

    def read(self) -> Iterator[ClusterChange]:
        """Every change that was kept, in order.

        Raises:
            KafkaStorageError: the file cannot be read or understood.
        """
        data = self._files.read_bytes(self._path) or b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            _log.warning("%s ends in the middle of a line, which is left out", self._path)
            self._files.write_atomic(self._path, whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                yield _change_of(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise unusable_file(self._path, f"makes no sense in line {number} ({error!r})") from error

    def keep(self, change: ClusterChange, everything: ClusterChange) -> None:
        """Makes a change durable.

        Args:
            change: what happens.
            everything: all that was kept before it; written anew where a failure left the file in doubt.

        Raises:
            KafkaStorageError: the disk refuses; the change has not happened.
        """
        if self._is_doubtful:
            self.rewrite(everything)
        try:
            if self._file is None:
                is_new = self._files.size_bytes(self._path) is None
                self._file = self._files.open_log(self._path, create=True)
                if is_new:
                    self._files.sync_directory(self._path.rpartition("/")[0])
            self._file.append([_line(change)])
            self._file.sync_now()
        except KafkaStorageError:
            self._is_doubtful = True
            raise

    def rewrite(self, everything: ClusterChange) -> None:
        """Replaces the file by one line.

        Raises:
            KafkaStorageError: the disk refuses; the file is as it was.
        """
        self.close()
        self._files.write_atomic(self._path, _line(everything) if everything else b"")
        self._is_doubtful = False

    def close(self) -> None:
        """Gives the file back; everything in it is synced."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(change: ClusterChange) -> bytes:
    text = json.dumps(encode_change(change), separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _change_of(line: bytes) -> ClusterChange:
    crc, _, text = line.partition(b" ")
    if int(crc, 16) != crc32c(text):
        raise ValueError("its checksum is wrong")
    return decode_change(json.loads(text))


def encode_change(change: ClusterChange) -> dict[str, Any]:
    """A change as JSON has it; what is empty is left out."""
    partitions: dict[str, dict[str, Any]] = {}
    for (topic, number), state in change.partitions.items():
        partitions.setdefault(topic, {})[str(number)] = list(state)
    parts = {
        "topics": [_topic_fields(topic) for topic in change.topics.values()],
        "deleted": [_topic_fields(topic) for topic in change.deleted],
        "partitions": partitions,
        "brokers": [
            [each.node_id, each.epoch, each.listeners, each.is_fenced, each.is_shutting_down]
            for each in change.brokers.values()
        ],
        "resources": [[*resource, text] for resource, text in change.resources.items()],
    }
    return {name: part for name, part in parts.items() if part}


def decode_change(content: dict[str, Any]) -> ClusterChange:
    """The change that ``encode_change`` made this of.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it made nothing like this.
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
        resources={Resource(kind, name): text for kind, name, text in content.get("resources", ())},
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


def _broker(
    node_id: int, epoch: int, listeners: dict[str, list[Any]], is_fenced: bool, is_shutting_down: bool
) -> BrokerState:
    addresses = {name: Address(*address) for name, address in listeners.items()}
    return BrokerState(node_id, epoch, addresses, is_fenced, is_shutting_down)
