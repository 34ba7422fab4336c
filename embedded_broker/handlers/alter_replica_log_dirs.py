"""AlterReplicaLogDirs 1–2: move partitions to other data directories of this broker while they are in use.

The answer says whether the move has begun; DescribeLogDirs shows its progress.
"""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.partitions import hosted_log
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    ErrorCode,
    InvalidTopicError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
    error_for,
)
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.moves import future_directory_name
from splashdam.storage.topic_names import MAX_DIRECTORY_CHARACTERS
from splashdam.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

_NAMED_IN_A_UNIT = 64
"""Partitions of one topic that are put into a table."""


@handles(AlterReplicaLogDirsRequest, versions=range(1, 3))
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> Steps[AlterReplicaLogDirsResponse]:
    """Answer for each partition; if several directories are named for one, the last counts."""
    wanted: dict[TopicPartition, str] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            yield 1 + len(topic.partitions) // _NAMED_IN_A_UNIT
            wanted.update((TopicPartition(topic.name, number), asked.path) for number in topic.partitions)
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for topic_partition, path in wanted.items():
        yield 1
        result = AlterReplicaLogDirPartitionResult(partition_index=topic_partition.partition)
        try:
            _move(topic_partition, path, context)
        except BrokerResponseError as error:
            result.error_code = error.code
        results.setdefault(topic_partition.topic, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=found)
            for name, found in results.items()
        ]
    )


def _move(topic_partition: TopicPartition, path: str, context: RequestContext) -> None:
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailedError
    if len(future_directory_name(topic_partition)) > MAX_DIRECTORY_CHARACTERS:
        raise InvalidTopicError("the name is too long for a directory of a partition that moves")
    logs = context.broker.logs
    directory = logs.directories.at(path)
    if directory is None:
        raise error_for(ErrorCode.LOG_DIR_NOT_FOUND)
    if directory.failure is not None:
        raise directory.failure
    try:
        hosted_log(context.broker, topic_partition)
    except NotLeaderOrFollowerError as error:
        raise ReplicaNotAvailableError(error.message) from error
    if len(logs.directories.online) < len(logs.directories.all):  # as in Kafka: it may hold a copy already
        raise KafkaStorageError("nothing moves while a data directory is offline")
    logs.moves.begin(topic_partition, directory, now_ms=context.broker.clock.wall_ms())
