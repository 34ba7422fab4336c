"""Reassignments in a cluster of three brokers in one process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lab.broker_process import BrokerDied, free_port
from lab.kill_points.asking import ask
from lab.kill_points.killing import Action
from lab.ledger import PARTITIONS, TOPIC
from lab.soak.cluster_process import BROKERS, ClusterEndedError, ClusterProcess
from splashdam.model.broker_errors import error_for
from splashdam.net.admin.topics import create_topic, describe_topic
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

_NODES = range(1, BROKERS + 1)
_REPLICAS = 2


class Brokers:
    """The cluster; each start is a new process with the same ports and directory.

    Args:
        data: its directory.
        log: file for the standard error of its processes.
    """

    def __init__(self, data: Path, log: Path) -> None:
        self.data = data
        self._log = log
        self._port = free_port(BROKERS)
        self._process: ClusterProcess | None = None
        self._status: int | None = None
        self.address = ",".join(f"127.0.0.1:{self._port + number}" for number in range(BROKERS))

    @property
    def status(self) -> int | None:
        return self._status if self._process is None else self._process.status

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        self._process = None
        try:
            self._process = ClusterProcess(self.data, self._log, self._port, environment)
        except ClusterEndedError as error:
            self._status = error.status
            raise BrokerDied(str(error)) from error

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def terminate(self) -> int:
        assert self._process is not None
        return self._process.close()

    def tell(self, command: str) -> None:
        """Send a command to the running process, see `lab.soak.cluster_process`."""
        assert self._process is not None
        self._process.tell(command)

    def create_topic(self) -> None:
        """Create the topic of the ledgers, with two replicas of each partition, and without retention."""

        async def create(client: ClusterClient) -> None:
            kept = {"retention.bytes": "-1"}
            await create_topic(
                client, TOPIC, partitions=PARTITIONS, replication_factor=_REPLICAS, configs=kept
            )

        ask(self.address, create)


class Reassignment(Action):
    """A reassignment of all partitions to brokers drawn at random."""

    name = "reassignment"
    patterns: ClassVar[Sequence[str]] = (
        f"*:*/{TOPIC}-*",
        "*:*/splashdam-cluster.*",
        "rename:*/broker-?/*-checkpoint.tmp",
    )

    def __init__(self, brokers: Brokers, dice: random.Random) -> None:
        self._brokers = brokers
        self._dice = dice
        self._wanted: dict[int, list[int]] = {}

    def begin(self) -> None:
        self._wanted = {number: self._dice.sample(_NODES, _REPLICAS) for number in range(PARTITIONS)}
        wanted = [
            ReassignablePartition(partition_index=number, replicas=nodes)
            for number, nodes in self._wanted.items()
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=TOPIC, partitions=wanted)]
        )
        ask(self._brokers.address, lambda client: client.controller(request, _check))
        self.is_accepted = True

    def is_done(self) -> bool:
        """Return whether replicas and ISR are as wanted: the next kill may hit any of them."""

        async def done(client: ClusterClient) -> bool:
            partitions = (await describe_topic(client, TOPIC)).partitions
            return all(
                list(each.replicas) == self._wanted[each.partition] and set(each.isr) == set(each.replicas)
                for each in partitions
            )

        return ask(self._brokers.address, done)


class ReassignmentWithoutOne(Reassignment):
    """A reassignment during which one broker is killed and started, within the running process."""

    name = "reassignment with a broker that dies"

    def begin(self) -> None:
        super().begin()
        node = self._dice.choice(_NODES)
        for command in (f"kill {node}", f"start {node}"):
            self._brokers.tell(command)


def _check(answer: AlterPartitionReassignmentsResponse) -> None:
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message or "")
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or "")
