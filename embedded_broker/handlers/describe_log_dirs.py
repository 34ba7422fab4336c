"""DescribeLogDirs 1–5: the data directories, their free space, and the logs in them (KIP-113, KIP-827).

A directory that has failed is answered with 56. From version 5 on the answer says which directories are
cordoned: they get no new partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode, KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.log_directories import LogDirectory
from splashdam.storage.log import Log
from splashdam.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(DescribeLogDirsRequest, versions=range(1, 6))
def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> Steps[DescribeLogDirsResponse]:
    """Answer for each directory, with the partitions asked for, or all."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    )

    def is_wanted(topic_partition: TopicPartition) -> bool:
        return wanted is None or topic_partition in wanted

    answer = DescribeLogDirsResponse()
    for directory in context.broker.logs.directories.all:
        answer.results.append((yield from _result(directory, is_wanted, context)))
    return answer


def _result(
    directory: LogDirectory, is_wanted: Callable[[TopicPartition], bool], context: RequestContext
) -> Steps[DescribeLogDirsResult]:
    result = DescribeLogDirsResult(log_dir=directory.root, topics=[], is_cordoned=directory.is_cordoned)
    try:
        if directory.failure is not None:
            raise directory.failure
        result.total_bytes, result.usable_bytes = context.broker.logs.files.space(directory.root)
    except KafkaStorageError as error:
        result.error_code = error.code
        return result
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic_partition, described in _described(directory, context):
        yield 1
        if is_wanted(topic_partition):
            topics.setdefault(topic_partition.topic, []).append(described)
    result.topics = [DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()]
    return result


def _described(
    directory: LogDirectory, context: RequestContext
) -> Iterator[tuple[TopicPartition, DescribeLogDirsPartition]]:
    logs = context.broker.logs
    for found, is_future in ((logs.logs, False), (logs.moves.futures, True)):
        for topic_partition, log in sorted(found.items(), key=lambda each: each[0]):
            if logs.directories.of(log) is directory:
                yield (
                    topic_partition,
                    DescribeLogDirsPartition(
                        partition_index=topic_partition.partition,
                        partition_size=log.size_bytes,
                        offset_lag=_lag(log, logs.logs) if is_future else 0,
                        is_future_key=is_future,
                    ),
                )


def _lag(future: Log, logs: Mapping[TopicPartition, Log]) -> int:
    """Return how many offsets the future log of a move is behind."""
    present = logs.get(future.topic_partition)  # it may have been deleted since the list was made
    return 0 if present is None else max(0, present.log_end_offset - future.log_end_offset)
