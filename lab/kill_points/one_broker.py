"""Compaction, and moves between the data directories of one broker (AlterReplicaLogDirs)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from kafka.errors import KafkaError as ForeignError

from lab.broker_process import Broker
from lab.kill_points.asking import ask
from lab.kill_points.killing import Action
from lab.ledger import PARTITIONS, TOPIC
from lab.soak.workloads import Compacted
from splashdam.model.broker_errors import error_for
from splashdam.model.values import TopicPartition
from splashdam.net.admin.log_dirs import describe_log_dirs
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

DIRECTORIES = ("disk-1", "disk-2")
PROPERTIES = {
    "num.partitions": str(PARTITIONS),
    "log.dirs": ",".join(DIRECTORIES),
    "log.segment.bytes": str(64 << 10),
    "log.segment.delete.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}


class CompactedOnce(Compacted):
    """The soak's compacted topic on one broker, with small segments, so that it is cleaned often."""

    configs: ClassVar[dict[str, str] | None] = {"cleanup.policy": "compact", "segment.bytes": "32768"}
    replicas: ClassVar[int] = 1


class Compaction(Action):
    """One cleaning of a log: the compacted topic and the internal topics always have records to clean."""

    name = "compaction"
    is_kept = False
    patterns: ClassVar[Sequence[str]] = (
        "*:*.cleaned*",
        "*:*.swap*",
        "rename:*.deleted",
        "unlink:*.deleted",
        "*:*/cleaner-offset-checkpoint*",
    )

    def __init__(self, broker: Broker, versions: CompactedOnce) -> None:
        self._versions = versions
        self._checkpoints = [broker.data / each / "cleaner-offset-checkpoint" for each in DIRECTORIES]
        self._before = self._offsets()

    def begin(self) -> None:
        self._before, self.is_accepted = self._offsets(), True

    def is_done(self) -> bool:
        return self._offsets() != self._before

    def check(self) -> None:
        with suppress(ForeignError):  # a reader that gave up, and not a record that is not there
            self._versions.compare()

    def _offsets(self) -> list[str]:
        return [path.read_text() if path.exists() else "" for path in self._checkpoints]


class Move(Action):
    """A move of a partition to the other directory."""

    name = "move"
    patterns: ClassVar[Sequence[str]] = (
        "*:*-future*",
        f"*:*/{TOPIC}-*-delete*",
        "*:*/splashdam-topics.*",
        f"rename:*/disk-?/{TOPIC}-*",
        "rename:*/disk-?/*-checkpoint.tmp",
    )

    def __init__(self, broker: Broker, dice: random.Random) -> None:
        self._address = broker.address
        self._roots = [str(broker.data / each) for each in DIRECTORIES]
        self._dice = dice
        self._partition, self._target = TopicPartition(TOPIC, 0), ""

    def begin(self) -> None:
        self._partition = TopicPartition(TOPIC, self._dice.randrange(PARTITIONS))
        now = self._places()
        self._target = next(root for root in self._roots if (root, False) not in now)
        topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[self._partition.partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=self._target, topics=[topic])])
        ask(self._address, lambda client: client.any(request, _check))
        self.is_accepted = True

    def is_done(self) -> bool:
        return self._places() == {(self._target, False)}

    def _places(self) -> set[tuple[str, bool]]:
        """Return the directories that have the partition, and for each whether it has the future log."""

        async def places(client: ClusterClient) -> set[tuple[str, bool]]:
            return {
                (described.path, replica.is_future)
                for described in await describe_log_dirs(client, [self._partition])
                for replica in described.replicas
            }

        return ask(self._address, places)


def _check(answer: AlterReplicaLogDirsResponse) -> None:
    for topic in answer.results:
        for each in topic.partitions:
            if each.error_code:
                raise error_for(each.error_code, f"moving {topic.topic_name}-{each.partition_index}")


def directories_of(data: Path) -> list[Path]:
    """Return the directories with logs."""
    return [data / each for each in DIRECTORIES]
