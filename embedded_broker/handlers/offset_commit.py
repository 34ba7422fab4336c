"""OffsetCommit 2–10: how far a group has read (facts B28, section 5.1).

A commit without a generation makes the group where it is missing, as a consumer with assigned partitions or
an admin tool wants it. A group with members takes them from these alone. Version 10 names topics by id.
"""

from __future__ import annotations

from splashdam.embedded_broker.groups.committing import Sorted, sorted_topics
from splashdam.embedded_broker.groups.group import Member, check_may_commit
from splashdam.embedded_broker.internal_topics import answer_when_all_safe
from splashdam.embedded_broker.registry import Answer, RequestContext, handles
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.options import MAX_LONG
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_TOPIC_ID_VERSION = 10
_NO_RETENTION = -1


@handles(OffsetCommitRequest, versions=range(2, 11))
def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> Answer:
    """Commits what can be; every partition has its own code."""
    broker, group_id = context.broker, request.group_id
    has_retention = request.retention_time_ms != _NO_RETENTION
    ends_ms = min(broker.clock.wall_ms() + request.retention_time_ms, MAX_LONG)
    found = sorted_topics(
        request.topics,
        context,
        names_ids=context.version >= _FIRST_TOPIC_ID_VERSION,
        expire_timestamp_ms=ends_ms if has_retention else None,
    )
    try:
        member = Member(
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            found.offsets,
        )
        check_may_commit(broker.groups.find(group_id), member, version=context.version)
        logs = [broker.offsets.commit(group_id, found.offsets)] if found.offsets else []
    except BrokerResponseError as error:
        return _refused(request, found, error.code)

    def refuse(_: BrokerResponseError) -> OffsetCommitResponse:
        return _refused(request, found, ErrorCode.NOT_COORDINATOR)

    return answer_when_all_safe(logs, _response(request, found), refuse)


def _refused(request: OffsetCommitRequest, found: Sorted, code: int) -> OffsetCommitResponse:
    found.refuse(code)
    return _response(request, found)


def _response(request: OffsetCommitRequest, found: Sorted) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(**each) for each in partitions],
            )
            for topic, (name, partitions) in zip(request.topics, found.answers(), strict=True)
        ]
    )
