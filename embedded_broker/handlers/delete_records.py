"""DeleteRecords 0–2: move the log start offset of partitions; records below it are gone.

The start is on stable storage before the answer, so that no crash brings the records back. (Kafka checkpoints
it within a minute.) Followers that are alive have moved their start, too. The next retention check removes
segments that lie below it as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import trio

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.execution.turns import Steps, let_others
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.partitions import leader_log
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, InvalidTopicError, error_for
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.log import Log, Replication
from splashdam.storage.topic_names import INTERNAL_TOPICS
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


@handles(DeleteRecordsRequest, versions=range(3))
def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> Steps[Answer]:
    """Answer for each partition; the new log start offsets are on disk before."""
    kept: dict[Log, list[DeleteRecordsPartitionResult]] = {}
    response = DeleteRecordsResponse()
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for asked in topic.partitions:
            yield 1
            where = TopicPartition(topic.name, asked.partition_index)
            result.partitions.append(_partition(where, asked, context, kept))
    return Parked(partial(_keep, response, kept, request.timeout_ms, context)) if kept else response


async def _keep(
    response: DeleteRecordsResponse,
    kept: Mapping[Log, Sequence[DeleteRecordsPartitionResult]],
    timeout_ms: int,
    context: RequestContext,
) -> DeleteRecordsResponse:
    deadline = trio.current_time() + timeout_ms / 1000
    try:
        await context.broker.logs.persist_log_starts(kept)
    except BrokerResponseError as error:
        for answers in kept.values():
            _refuse(answers, error.code)
        return response
    replicated = [(log.replication, answers) for log, answers in kept.items() if log.replication is not None]
    for number, (replication, answers) in enumerate(replicated, 1):
        await let_others(number)
        await _wait_deleted(replication, answers, deadline)
    return response


async def _wait_deleted(
    replication: Replication, answers: Sequence[DeleteRecordsPartitionResult], deadline: float
) -> None:
    """Wait until the followers have moved their log start offsets, too: none can bring the records back."""
    with trio.move_on_at(deadline) as scope:
        try:
            await replication.wait_deleted(answers[-1].low_watermark)
        except BrokerResponseError as error:
            _refuse(answers, error.code)
    if scope.cancelled_caught:
        _refuse(answers, ErrorCode.REQUEST_TIMED_OUT)


def _refuse(answers: Sequence[DeleteRecordsPartitionResult], error_code: int) -> None:
    for answer in answers:
        answer.error_code, answer.low_watermark = error_code, _NO_LOW_WATERMARK


def _partition(
    topic_partition: TopicPartition,
    asked: DeleteRecordsPartition,
    context: RequestContext,
    kept: dict[Log, list[DeleteRecordsPartitionResult]],
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK
    )
    try:
        if topic_partition.topic in INTERNAL_TOPICS:
            raise InvalidTopicError(f"records of the internal topic {quoted(topic_partition.topic)} stay")
        log = leader_log(context.broker, topic_partition)
        if not log.settings.is_deleted:
            raise error_for(
                ErrorCode.POLICY_VIOLATION,
                f"{topic_partition}: records cannot be deleted by offset where cleanup.policy is compact",
            )
        before = log.log_start_offset
        offset = log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
        answer.low_watermark = log.advance_log_start(offset)
        if answer.low_watermark > 0:  # one that an earlier request moved may not be kept yet
            kept.setdefault(log, []).append(answer)
        if answer.low_watermark > before:
            context.broker.log_start_moved(topic_partition)
    except BrokerResponseError as error:
        answer.error_code = error.code
    return answer
