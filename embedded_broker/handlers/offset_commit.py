"""OffsetCommit 2–9: how far a group has read (facts B28, section 5.1).

A commit without a generation makes the group where it is missing, as a consumer with assigned partitions or
an admin tool wants it. Members are not known yet, so a commit with a generation is refused.
"""

from __future__ import annotations

from splashdam.embedded_broker.groups.committing import Sorted
from splashdam.embedded_broker.groups.group import Member, check_may_commit
from splashdam.embedded_broker.internal_topics import answer_when_safe
from splashdam.embedded_broker.registry import Answer, RequestContext, handles
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_GROUP_ID_NOT_FOUND_VERSION = 9
_NO_RETENTION = -1


@handles(OffsetCommitRequest, versions=range(2, 10))
def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> Answer:
    """Commits what can be; every partition has its own code."""
    broker, group_id = context.broker, request.group_id
    has_retention = request.retention_time_ms != _NO_RETENTION
    expire_ms = broker.clock.wall_ms() + request.retention_time_ms if has_retention else None
    found = Sorted(request.topics, broker, expire_ms)
    try:
        missing = (
            ErrorCode.GROUP_ID_NOT_FOUND
            if context.version >= _FIRST_GROUP_ID_NOT_FOUND_VERSION
            else ErrorCode.ILLEGAL_GENERATION
        )
        member = Member(request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
        check_may_commit(broker.offsets.group(group_id), member, missing=missing)
        log = broker.offsets.commit(group_id, found.offsets) if found.offsets else None
    except BrokerResponseError as error:
        found.refuse(error.code)
        return _response(request, found)
    if log is None:
        return _response(request, found)

    def refused(_error: KafkaStorageError) -> OffsetCommitResponse:
        found.refuse(ErrorCode.NOT_COORDINATOR)
        return _response(request, found)

    return answer_when_safe(log, _response(request, found), refused)


def _response(request: OffsetCommitRequest, found: Sorted) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code_of(index))
                    for index in (asked.partition_index for asked in topic.partitions)
                ],
            )
            for topic in request.topics
            for code_of in [found.code_of(topic.name)]
        ]
    )
