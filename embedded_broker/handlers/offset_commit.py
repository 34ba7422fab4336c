"""OffsetCommit 2–10: how far a group has read.

A commit without a generation creates a missing group: consumers that use ``assign()`` and admin tools commit
so. A group with members accepts commits from its members only. Version 10 names topics by id.
"""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.groups.group import Member, check_may_commit
from splashdam.embedded_broker.groups.offset_commit import checked_offsets, not_committed
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import Appended
from splashdam.model.broker_errors import BrokerResponseError
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
def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> Steps[Answer]:
    """Commit the legal offsets; answer with a code for each partition."""
    broker, group_id = context.broker, request.group_id
    has_retention = request.retention_time_ms != _NO_RETENTION
    ends_ms = min(broker.clock.wall_ms() + request.retention_time_ms, MAX_LONG)
    found = yield from checked_offsets(
        request.topics,
        broker,
        names_ids=context.version >= _FIRST_TOPIC_ID_VERSION,
        expire_timestamp_ms=ends_ms if has_retention else None,
    )
    appended = Appended()
    try:
        member = Member(
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            found.offsets,
        )
        check_may_commit(broker.groups.find(group_id), member, version=context.version)
        if found.offsets:
            appended.add(broker.offsets.commit(group_id, found.offsets))
    except BrokerResponseError as error:
        found.refuse(error.code)
    answers = yield from found.answers(OffsetCommitResponsePartition)
    answer = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)
            for topic, (name, partitions) in zip(request.topics, answers, strict=True)
        ]
    )
    return appended.answer(answer, partial(not_committed, answer))
