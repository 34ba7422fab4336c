"""Kafka's broker settings that this broker accepts and ignores, each with the reason.

A ``server.properties`` that was written for Kafka starts this broker, too, and the log says which of its
lines have no effect. Settings that promise what is missing here (ZooKeeper's authorizer) are not in this
list: they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

_REASONS = {
    "the address is given by host and port": """
        inter.broker.listener.name control.plane.listener.name early.start.listeners""",
    "the data directory is given by its path": "log.dir metadata.log.dir",
    "this broker is controller and cluster at once": """
        process.roles controller.quorum.voters controller.quorum.bootstrap.servers
        controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms broker.session.timeout.ms
        broker.heartbeat.interval.ms initial.broker.registration.timeout.ms metadata.log.segment.bytes
        metadata.max.retention.bytes metadata.max.retention.ms zookeeper.connect
        zookeeper.connection.timeout.ms zookeeper.session.timeout.ms broker.id.generation.enable
        controlled.shutdown.enable leader.imbalance.per.broker.percentage
        inter.broker.protocol.version""",
    "logs move one after the other": "num.replica.alter.log.dirs.threads",
    "one event loop does the work of all threads": """
        num.network.threads num.io.threads num.recovery.threads.per.data.dir background.threads
        group.coordinator.threads
        queued.max.requests""",
    "the system's own buffers and limits serve": """
        socket.send.buffer.bytes socket.receive.buffer.bytes replica.socket.receive.buffer.bytes
        socket.listen.backlog.size""",
    "group.version says which protocols groups have": "group.coordinator.rebalance.protocols",
    "assignments are computed, and patterns matched, on every change": """
        group.consumer.assignment.interval.ms group.consumer.min.assignment.interval.ms
        group.consumer.max.assignment.interval.ms group.consumer.assignor.offload.enable
        group.consumer.regex.refresh.interval.ms""",
    "records of groups are neither compressed nor delayed": """
        offsets.topic.compression.codec offsets.commit.timeout.ms""",
    "there are no share groups": """
        share.coordinator.state.topic.replication.factor share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions""",
    "loading needs no buffer of its own": "transaction.state.log.load.buffer.size offsets.load.buffer.size",
    "one task fetches from each leader": "num.replica.fetchers",
    "there are no metrics reporters": """
        metric.reporters metrics.num.samples metrics.sample.window.ms metrics.recording.level
        auto.include.jmx.reporter""",
    "requests wait as long as they say themselves": "request.timeout.ms",
}

WITHOUT_EFFECT: Mapping[str, str] = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
"""Name → why setting it has no effect."""

_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}
"""Kafka's ``ConfigType`` numbers."""

_TABLE = """
background.threads int 10
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
controlled.shutdown.enable boolean true
controller.quorum.bootstrap.servers list
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.voters list
early.start.listeners list
group.coordinator.rebalance.protocols list classic,consumer,streams
group.coordinator.threads int 4
initial.broker.registration.timeout.ms int 60000
inter.broker.listener.name string
log.dir list /tmp/kafka-logs
metadata.log.dir string
metadata.log.segment.bytes int 1073741824
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
num.io.threads int 8
num.network.threads int 3
num.recovery.threads.per.data.dir int 2
num.replica.alter.log.dirs.threads int
num.replica.fetchers int 1
offsets.commit.timeout.ms int 5000
offsets.load.buffer.size int 5242880
offsets.topic.compression.codec int 0
process.roles list
queued.max.requests int 500
replica.socket.receive.buffer.bytes int 65536
request.timeout.ms int 30000
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.replication.factor short 3
socket.listen.backlog.size int 50
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
transaction.state.log.load.buffer.size int 5242880
"""


def _read(line: str) -> tuple[str, tuple[int, str | None]]:
    name, kind, *default = line.split()
    return name, (_TYPES[kind], default[0] if default else None)


IDLE_CONFIGS: Mapping[str, tuple[int, str | None]] = dict(map(_read, _TABLE.strip().splitlines()))
"""Name → number of its type, and its default, from Kafka 4.3: DescribeConfigs answers with them.

One line each: name, type, default (nothing: there is none)."""
