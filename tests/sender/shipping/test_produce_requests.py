"""Requests and answers, between batches and the protocol."""

from __future__ import annotations

from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.accumulator.compressions import BatchCompressions
from splashdam.model.broker_errors import NetworkExceptionError, RequestTimedOutError
from splashdam.model.cluster import Node
from splashdam.model.errors import KafkaConnectionError, ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import BatchBuffer
from splashdam.sender.shipping import answer_of_failure, build_request, new_leader
from splashdam.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)


def batch_for(topic: str, partition: int) -> ProducerBatch:
    """A batch in flight with one record."""
    buffer = BatchBuffer(200)
    buffer.try_append(0, None, b"v", None)
    batch = ProducerBatch(TopicPartition(topic, partition), buffer, 0, 0)
    batch.close()
    batch.advance(BatchEvent.DRAIN)
    return batch


def test_records_go_by_reference():
    """A request groups by topic, and holds the batches' own bytes."""
    batches = [batch_for("t", 0), batch_for("u", 3), batch_for("t", 2)]
    plain = BatchCompressions(NO_COMPRESSION, {})
    request = build_request(batches, acks=1, timeout_ms=1500.9, compressions=plain)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 1500, None)
    named = [(topic.name, [each.index for each in topic.partition_data]) for topic in request.topic_data]
    assert named == [("t", [0, 2]), ("u", [3])]
    assert request.topic_data[1].partition_data[0].records is batches[1].sealed


def test_failures_have_a_code():
    """Broker errors keep theirs; a lost connection or an illegal answer counts as 13; texts stay whole."""
    batch = batch_for("t", 5)
    timed_out = answer_of_failure(batch, RequestTimedOutError("no answer within 5 ms"))
    assert (timed_out.index, timed_out.error_code, timed_out.error_message) == (5, 7, "no answer within 5 ms")
    for error in (NetworkExceptionError("gone"), KafkaConnectionError("gone"), ProtocolError("gone")):
        answer = answer_of_failure(batch, error)
        assert (answer.error_code, answer.base_offset, answer.error_message) == (13, -1, "gone")


def test_leader_named_in_an_answer():
    """With an address from the answer, else one that is known, else none."""
    known = {4: Node(4, "known", 1)}
    response = ProduceResponse(node_endpoints=[NodeEndpoint(node_id=3, host="h", port=9, rack="r")])

    def named(leader_id: int) -> Node | None:
        leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=1)
        return new_leader(PartitionProduceResponse(current_leader=leader), response, known)

    assert named(3) == Node(3, "h", 9, "r")
    assert named(4) == known[4]
    assert named(5) is None
    assert named(-1) is None
