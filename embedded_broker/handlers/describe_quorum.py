"""DescribeQuorum 0–2: the controller as a KRaft quorum of one (KIP-595, KIP-836, KIP-853).

The brokers of a cluster share one controller in their process. It is described as a quorum whose only voter
is the broker that answers name as controller; the other live brokers are observers, and are never behind.
There is no metadata log, so its end offset is the number of changes since the controller started.
"""

from __future__ import annotations

from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.wire.messages.describe_quorum import (
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"
_PARTITION = 0
_FIRST_NODES_VERSION = 2
_LEADER_EPOCH = 1
"""Leader epoch of the quorum: the controller never changes while its brokers run."""

_CONTROLLER_LISTENER = "CONTROLLER"


@handles(DescribeQuorumRequest, versions=range(3))
def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Answer for ``__cluster_metadata``, which must be asked for alone; anything else is 3 (as Kafka 4.4)."""
    if not request.topics:
        return DescribeQuorumResponse()
    asked = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, _PARTITION)]:
        return DescribeQuorumResponse(topics=[_refused(topic) for topic in request.topics])
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[_quorum(context)])],
        nodes=_nodes(context) if context.version >= _FIRST_NODES_VERSION else [],
    )


def _nodes(context: RequestContext) -> list[Node]:
    """Return the controller's address: that of its broker."""
    leadership = context.broker.leadership
    address = leadership.brokers(context.address).get(leadership.controller_id)
    if address is None:
        return []
    listener = Listener(name=_CONTROLLER_LISTENER, host=address.host, port=address.port)
    return [Node(node_id=leadership.controller_id, listeners=[listener])]


def _quorum(context: RequestContext) -> PartitionData:
    broker = context.broker
    now_ms, offset = int(broker.clock.wall_ms()), broker.controller.changes
    leader_id = broker.leadership.controller_id
    alive = broker.leadership.brokers(context.address)

    def state_of(node_id: int) -> ReplicaState:
        return ReplicaState(
            replica_id=node_id,
            log_end_offset=offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )

    return PartitionData(
        partition_index=_PARTITION,
        leader_id=leader_id,
        leader_epoch=_LEADER_EPOCH,
        high_watermark=offset,
        current_voters=[state_of(leader_id)],
        observers=[state_of(node_id) for node_id in alive if node_id != leader_id],
    )


def _refused(topic: AskedTopic) -> TopicData:
    error = error_for(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "only partition 0 of __cluster_metadata has a quorum"
    )
    return TopicData(
        topic_name=topic.topic_name,
        partitions=[
            PartitionData(
                partition_index=each.partition_index, error_code=error.code, error_message=error.message
            )
            for each in topic.partitions
        ],
    )
