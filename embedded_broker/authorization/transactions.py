"""Guards of requests about producers and transactions."""

from __future__ import annotations

from splashdam.embedded_broker.authorization.refusals import (
    CODES,
    REASONS,
    add_refused,
    may,
    refused,
    split,
    then,
)
from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps, in_steps
from splashdam.embedded_broker.serving.registry import PlainHandler, RequestContext, guards
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from splashdam.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from splashdam.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_ID, _GROUP = CODES[ResourceType.TRANSACTIONAL_ID], CODES[ResourceType.GROUP]
_TOPIC, _CLUSTER = CODES[ResourceType.TOPIC], CODES[ResourceType.CLUSTER]
_KINDS = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
_FIRST_BROKERS_ADD, _FIRST_KEYS_VERSION = 4, 4


def _may_write(context: RequestContext, transactional_id: str) -> bool:
    return context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


@guards(InitProducerIdRequest)
def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, handler: PlainHandler
) -> Answer:
    """WRITE on the transactional id; without one, WRITE on any topic is enough (KIP-679)."""
    if request.transactional_id is not None:
        if not _may_write(context, request.transactional_id):
            return InitProducerIdResponse(error_code=_ID, producer_epoch=-1)
    elif not (
        context.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        or context.authorize_some(Operation.WRITE, ResourceType.TOPIC)
    ):
        return InitProducerIdResponse(error_code=_CLUSTER, producer_epoch=-1)
    return handler(request, context)


@guards(AddPartitionsToTxnRequest)
def add_partitions(
    request: AddPartitionsToTxnRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """WRITE on the id and on every topic: all partitions are added, or none. Brokers need CLUSTER_ACTION."""
    if context.version >= _FIRST_BROKERS_ADD:
        if not context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=_CLUSTER)
        return handler(request, context)
    answer, attribute = AddPartitionsToTxnResponse(), "results_by_topic_v3_and_below"
    topics = request.v3_and_below_topics
    if not _may_write(context, request.v3_and_below_transactional_id):
        yield from add_refused(topics, _ID, attribute)(answer)
        return answer
    allowed, others = split(topics, may(Operation.WRITE, context))
    if not others:
        return handler(request, context)
    yield from add_refused(others, _TOPIC, attribute)(answer)
    yield from add_refused(allowed, ErrorCode.OPERATION_NOT_ATTEMPTED, attribute)(answer)
    return answer


@guards(AddOffsetsToTxnRequest)
def add_offsets(request: AddOffsetsToTxnRequest, context: RequestContext, handler: PlainHandler) -> Answer:
    """WRITE on the id, READ on the group."""
    if not _may_write(context, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_ID)
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=_GROUP)
    return handler(request, context)


@guards(EndTxnRequest)
def end(request: EndTxnRequest, context: RequestContext, handler: PlainHandler) -> Answer:
    """WRITE on the id."""
    if not _may_write(context, request.transactional_id):
        return EndTxnResponse(error_code=_ID)
    return handler(request, context)


@guards(TxnOffsetCommitRequest)
def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """WRITE on the id, READ on the group and on each topic."""
    answer, code = TxnOffsetCommitResponse(), 0
    if not _may_write(context, request.transactional_id):
        code = _ID
    elif not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        code = _GROUP
    if code:
        yield from add_refused(request.topics, code, "topics")(answer)
        return answer
    request.topics, others = split(request.topics, may(Operation.READ, context))
    return (yield from then(handler(request, context), add_refused(others, _TOPIC, "topics"), context))


@guards(WriteTxnMarkersRequest)
def write_markers(
    request: WriteTxnMarkersRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """ALTER or CLUSTER_ACTION on the cluster, which only brokers have."""
    if any(
        context.authorize(operation, ResourceType.CLUSTER)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    ):
        return handler(request, context)
    answer = WriteTxnMarkersResponse()
    for marker in request.markers:
        topics = yield from refused(WritableTxnMarkerTopicResult, marker.topics, _CLUSTER)
        answer.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        yield 1
    return answer


@guards(FindCoordinatorRequest)
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """DESCRIBE on the group or the transactional id."""
    kind = _KINDS.get(request.key_type)
    if kind is None:
        return handler(request, context)
    if context.version < _FIRST_KEYS_VERSION:
        if context.authorize(Operation.DESCRIBE, kind, request.key):
            return handler(request, context)
        code = CODES[kind]
        return FindCoordinatorResponse(error_code=code, error_message=REASONS[code], node_id=-1, port=-1)
    request.coordinator_keys, others = split(
        request.coordinator_keys, lambda key: context.authorize(Operation.DESCRIBE, kind, key)
    )

    def change(answer: FindCoordinatorResponse) -> Steps[None]:
        answer.coordinators += yield from in_steps(
            others,
            lambda key: Coordinator(key=key, node_id=-1, port=-1, error_code=CODES[kind], error_message=""),
        )

    return (yield from then(handler(request, context), change, context))
