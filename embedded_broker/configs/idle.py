"""Kafka's types and defaults of the settings that have no effect here: they are described all the same.

A tool that asks for ``num.io.threads`` gets Kafka's answer. From the broker configuration of Kafka 4.3; one
line each: name, type, default (nothing: there is none).
"""

from __future__ import annotations

from collections.abc import Mapping

_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}
"""Kafka's ``ConfigType`` numbers."""

_TABLE = """
auto.leader.rebalance.enable boolean true
background.threads int 10
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
controlled.shutdown.enable boolean true
controller.quorum.bootstrap.servers list
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.voters list
default.replication.factor int 1
early.start.listeners list
group.consumer.heartbeat.interval.ms int 5000
group.consumer.session.timeout.ms int 45000
group.coordinator.rebalance.protocols list classic,consumer,streams
group.coordinator.threads int 4
initial.broker.registration.timeout.ms int 60000
inter.broker.listener.name string
leader.imbalance.check.interval.seconds long 300
log.dir list /tmp/kafka-logs
log.dirs list
max.connection.creation.rate int 2147483647
max.connections int 2147483647
max.connections.per.ip int 2147483647
max.incremental.fetch.session.cache.slots int 1000
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
offsets.topic.replication.factor short 3
process.roles list
queued.max.request.bytes long -1
queued.max.requests int 500
replica.fetch.backoff.ms int 1000
replica.fetch.max.bytes int 1048576
replica.fetch.min.bytes int 1
replica.fetch.response.max.bytes int 10485760
replica.fetch.wait.max.ms int 500
replica.lag.time.max.ms long 30000
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
request.timeout.ms int 30000
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.replication.factor short 3
socket.listen.backlog.size int 50
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
transaction.state.log.load.buffer.size int 5242880
transaction.state.log.min.isr int 2
transaction.state.log.replication.factor short 3
"""


def _read(line: str) -> tuple[str, tuple[int, str | None]]:
    name, kind, *default = line.split()
    return name, (_TYPES[kind], default[0] if default else None)


IDLE_CONFIGS: Mapping[str, tuple[int, str | None]] = dict(map(_read, _TABLE.strip().splitlines()))
"""Name → number of its type, and its default."""
