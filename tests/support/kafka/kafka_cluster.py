"""Three nodes of a real Kafka, each broker and controller, whose brokers can be ended, hung and started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from splashdam.storage.directories.partition_metadata import format_uuid, new_uuid
from support.kafka.kafka_jars import KafkaBroker
from support.running.ports import free_port

NODES = (1, 2, 3)
HEAP = "256m"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    # Kafka's 9 s and 2 s, shortened: each kill waits for them.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    # Elections happen when a behaviour asks for one.
    "auto.leader.rebalance.enable": "false",
}


class KafkaCluster:
    """A quorum of three combined nodes on loopback.

    Args:
        version: of Kafka.
        home: a directory of its own.
    """

    def __init__(self, version: str, home: Path) -> None:
        ports = [(free_port(), free_port()) for _ in NODES]
        voters = ",".join(f"{node}@127.0.0.1:{at}" for node, (_, at) in zip(NODES, ports, strict=True))
        cluster_id = format_uuid(new_uuid())
        self.nodes = list(NODES)
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port, _ in ports)
        self._frozen: set[int] = set()
        self._up: set[int] = set()
        self._brokers = {
            node: KafkaBroker(
                version,
                home / f"node-{node}",
                {
                    **SETTINGS,
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                },
                cluster_id=cluster_id,
                heap=HEAP,
            )
            for node, (port, controller) in zip(NODES, ports, strict=True)
        }

    def launch(self) -> None:
        """Starts all nodes: none answers before two of them run."""
        for broker in self._brokers.values():
            broker.launch()
        for node, broker in self._brokers.items():
            broker.wait_until_it_answers()
            self._up.add(node)

    def start(self, node: int) -> None:
        """Starts a node that is down, at its ports."""
        self._brokers[node].launch()
        self._brokers[node].wait_until_it_answers()
        self._up.add(node)

    def stop(self, node: int) -> None:
        """Ends a node in order."""
        self._up.discard(node)
        self._brokers[node].stop()

    def kill(self, node: int) -> None:
        """Ends a node at once."""
        self._up.discard(node)
        self._brokers[node].stop(kill=True)

    def is_up(self, node: int) -> bool:
        """Whether it was started and not ended."""
        return node in self._up

    def freeze(self, node: int) -> None:
        """Lets a node hang."""
        os.kill(self._brokers[node].pid, signal.SIGSTOP)
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """Lets a node go on that hangs."""
        if node in self._frozen:
            self._frozen.discard(node)
            os.kill(self._brokers[node].pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends all nodes at once: the directories are not needed any more."""
        for node in self.nodes:
            self.thaw(node)
            self.kill(node)


@contextmanager
def kafka_cluster(version: str, home: Path) -> Iterator[KafkaCluster]:
    """A running cluster."""
    cluster = KafkaCluster(version, home)
    try:
        cluster.launch()
        yield cluster
    finally:
        cluster.close()
