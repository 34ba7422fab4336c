"""TxnOffsetCommit 0–6: offsets that are committed with the producer's transaction.

They are pending in ``__consumer_offsets`` until the transaction's marker. The producer must have brought the
group into its transaction by AddOffsetsToTxn; version 5 does so itself (KIP-890). Version 6
names topics by id, and knows the errors of groups of KIP-848 (KIP-1319).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.groups.group import Member, check_may_commit
from splashdam.embedded_broker.groups.offset_commit import CheckedOffsets, checked_offsets, not_committed
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import Appended
from splashdam.embedded_broker.transactions.metadata import ProducerIdentity
from splashdam.embedded_broker.transactions.verification import (
    CoordinatorVerdict,
    Enrolment,
    join_transaction,
)
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.storage.log import Log
from splashdam.wire.message import Response
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_ABORTABLE_VERSION = 4
_FIRST_IMPLICIT_VERSION = 5
_FIRST_TOPIC_ID_VERSION = 6


@handles(TxnOffsetCommitRequest, versions=range(7))
def txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> Steps[Answer]:
    """Append the legal offsets to the transaction; answer with a code for each partition."""
    coordinator = context.broker.enrolments.coordinator_to_ask(request.transactional_id)
    if coordinator is not None:
        return Parked(partial(_commit_verified, coordinator, request, context))
    return (yield from _commit_all(request, context, None))


async def _commit_verified(
    coordinator: int, request: TxnOffsetCommitRequest, context: RequestContext
) -> Response | None:
    """Commit after the coordinator of the transaction has enrolled the partition."""
    broker, wanted = context.broker, []
    with suppress(BrokerResponseError):  # raised again, and answered, at the commit
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        wanted.append(Enrolment(broker.offsets.partition_of(request.group_id), producer))
    is_implicit = context.version >= _FIRST_IMPLICIT_VERSION
    enrolments = broker.enrolments
    verdict = await enrolments.ask(coordinator, request.transactional_id, wanted, is_implicit=is_implicit)
    return await broker.turns.finish(_commit_all(request, context, verdict), context.account)


def _commit_all(
    request: TxnOffsetCommitRequest, context: RequestContext, verdict: CoordinatorVerdict | None
) -> Steps[Answer]:
    found = yield from checked_offsets(
        request.topics, context.broker, names_ids=context.version >= _FIRST_TOPIC_ID_VERSION
    )
    appended = Appended()
    try:
        for log in _commit(request, context, found, verdict) if found.offsets else ():
            appended.add(log)
    except BrokerResponseError as error:
        found.refuse(_code(error, context.version))
    answers = yield from found.answers(TxnOffsetCommitResponsePartition)
    answer = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)
            for topic, (name, partitions) in zip(request.topics, answers, strict=True)
        ]
    )
    return appended.answer(answer, partial(not_committed, answer))


def _commit(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    found: CheckedOffsets,
    verdict: CoordinatorVerdict | None,
) -> list[Log]:
    """Append, and return the logs that the answer has to wait for."""
    broker, group_id = context.broker, request.group_id
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group's id is empty")
    if request.producer_id < 0:
        raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request names no producer id")
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    state_log = join_transaction(
        broker,
        request.transactional_id,
        producer,
        broker.offsets.partition_of(group_id),
        context.version >= _FIRST_IMPLICIT_VERSION,
        verdict=verdict,
    )
    member = Member(
        request.generation_id_or_member_epoch, request.member_id, request.group_instance_id, found.offsets
    )
    check_may_commit(broker.groups.find(group_id), member, version=context.version, is_transactional=True)
    log = broker.offsets.commit(
        group_id, found.offsets, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
    return [log] if state_log is None else [state_log, log]


def _code(error: BrokerResponseError, version: int) -> int:
    """Return the code that Kafka sends: codes that older producers do not know become ones they know."""
    if error.code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error.code == ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if error.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_IMPLICIT_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error.code
