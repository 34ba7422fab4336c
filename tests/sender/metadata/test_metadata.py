"""Which topics are asked for, when, and how answers become snapshots."""

from __future__ import annotations

import math

import pytest

from splashdam.model.cluster import Node
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.metadata_reading import read_cluster
from splashdam.sender.metadata import Metadata, run_waiters
from splashdam.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TP = TopicPartition("t", 0)


def answer(*leaders, topic="t", epoch=0, error_code=0, topic_id=bytes(16)):
    """What a response says of one topic; one leader per partition."""
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
        for number, leader in enumerate(leaders)
    ]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=each, host=f"h{each}", port=9) for each in (1, 2)],
        topics=[
            MetadataResponseTopic(name=topic, error_code=error_code, partitions=partitions, topic_id=topic_id)
        ],
    )
    return read_cluster(response)


@pytest.fixture
def metadata():
    """Without jitter."""
    return Metadata(random=lambda: 0.5)


def due(metadata, now_ms, needed=True):
    """How long until the next question."""
    return metadata.due_in_ms(now_ms, needed=needed)


def test_nobody_is_asked_without_a_topic(metadata):
    """A producer that was made and not used leaves the cluster alone."""
    metadata.request_update()
    assert due(metadata, 0) == math.inf


def test_new_topic_is_asked_for_at_once(metadata):
    """The request is due right after another response, and also while nobody waits."""
    metadata.request_topic("t", 0)
    assert due(metadata, 0, needed=False) == 0
    assert metadata.begin(0, ()) == ["t"]
    assert due(metadata, 0) == math.inf  # one question at a time
    metadata.apply(answer(1), 1)
    metadata.request_topic("u", 2)
    assert due(metadata, 2) == 0
    assert metadata.begin(2, ()) == ["u"]


def test_many_new_topics_do_not_cost_a_question_for_all_each(metadata):
    """As in Java: a missing topic is asked for alone, and what is known of the others stays."""
    names = [f"t{number}" for number in range(50)]
    for now_ms, name in enumerate(names):
        metadata.request_topic(name, now_ms)
        assert metadata.begin(now_ms, ()) == [name]
        metadata.apply(answer(1, topic=name), now_ms)
    assert sorted(metadata.cluster.topics) == sorted(metadata.topics_in_use) == sorted(names)
    assert due(metadata, 50, needed=False) == 300_000 - 50  # such questions do not put off the one for all
    metadata.request_topic("t1", 50)  # a partition of it that is not there yet
    assert metadata.begin(50, ()) == ["t1"]
    metadata.apply(answer(1, 1, topic="t1"), 50)
    metadata.request_update()
    assert metadata.begin(100, ()) == sorted(names)


def test_question_for_all_comes_by_age_also_while_topics_are_new(metadata):
    """The new topic is in that request; a failed request for new topics is repeated for all."""
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.apply(answer(1), 0)
    metadata.request_topic("u", 1)
    assert metadata.begin(1, ()) == ["u"]
    metadata.failed("connection refused", 2)
    assert metadata.begin(200, ()) == ["t", "u"]
    metadata.apply(answer(1), 200)
    metadata.touch(["t", "u"], 300_000)
    metadata.request_topic("v", 300_200)
    assert metadata.begin(300_200, ()) == ["t", "u", "v"]


def test_batches_without_a_leader_do_not_rely_on_a_question_for_other_topics(metadata):
    """The answer on its way is for the new topic alone."""
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.apply(answer(-1), 0)
    metadata.request_topic("u", 1)
    assert metadata.begin(1, ()) == ["u"]
    metadata.request_missing(["u"], 1)
    metadata.request_missing(["t"], 1)
    metadata.apply(answer(1, topic="u"), 2)
    assert due(metadata, 1000) == 0
    assert metadata.begin(1000, ()) == ["t", "u"]


def test_topic_requested_during_a_question_is_asked_for_next(metadata):
    """The answer on its way does not name it."""
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.request_topic("u", 0)
    metadata.apply(answer(1), 1)
    assert due(metadata, 500, needed=False) == 0
    assert metadata.begin(500, ()) == ["u"]


def test_same_question_comes_at_growing_intervals(metadata):
    """An unknown topic is asked for again after 100, 200, 400 ms …, as long as somebody needs it."""
    waits, now_ms = [], 0.0
    for _ in range(5):
        metadata.request_topic("t", now_ms)
        metadata.begin(now_ms, ())
        metadata.apply(answer(error_code=3), now_ms)
        metadata.request_topic("t", now_ms)
        waits.append(due(metadata, now_ms))
        now_ms += waits[-1]
    assert waits == [100, 200, 400, 800, 1000]
    assert "topic 't'" in metadata.last_failure


def test_unneeded_failures_are_not_repeated(metadata):
    """A broker that is away is not asked every second for ever when nobody waits for anything."""
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.failed("connection refused", 10)
    assert due(metadata, 10, needed=True) == 100
    assert due(metadata, 10, needed=False) == 300_000 - 10
    assert metadata.last_failure == "connection refused"


def test_unreachable_broker_counts_as_an_attempt(metadata):
    """A topic somebody once asked for is no reason to knock at a closed door for ever."""
    metadata.request_topic("t", 0)
    metadata.note_failure("node 1: connection refused", 50)
    assert due(metadata, 50, needed=True) == 0
    assert due(metadata, 50, needed=False) == 300_000
    assert metadata.last_failure == "node 1: connection refused"


def test_refreshes_by_age_and_forgets_idle_topics(metadata):
    """Every five minutes; a topic that was not used for five minutes is dropped, unless batches wait."""
    metadata.request_topic("t", 0)
    metadata.request_topic("u", 0)
    metadata.begin(0, ())
    metadata.apply(answer(1), 0)
    metadata.touch(["t"], 200_000)
    assert due(metadata, 1000, needed=False) == 299_000
    assert due(metadata, 300_000, needed=False) == 0
    assert metadata.begin(300_000, {"w"}) == ["t", "w"]
    metadata.apply(answer(1, topic="w"), 300_000)
    assert set(metadata.cluster.topics) == {"w"}  # the answer did not name t: the broker does not know it
    metadata.begin(1_000_000, ())
    metadata.apply(answer(1, topic="w"), 1_000_000)
    assert due(metadata, 9e9) == math.inf


def test_every_answer_makes_a_new_snapshot(metadata):
    """Waiters compare snapshots by identity, so a response that changes nothing counts, too."""
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.apply(answer(1), 0)
    before = metadata.cluster
    metadata.begin(0, ())
    metadata.apply(answer(1), 0)
    assert metadata.cluster == before
    assert metadata.cluster is not before


def test_older_leader_epoch_is_ignored(metadata):
    """A broker that lags behind does not take us back to the former leader; a new topic of that name does."""
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.apply(answer(2, epoch=5), 0)
    metadata.begin(0, ())
    metadata.apply(answer(1, epoch=4), 0)
    assert metadata.cluster.leader_for(TP) == 2
    metadata.begin(0, ())
    metadata.apply(answer(1, epoch=0, topic_id=b"x" * 16), 0)
    assert metadata.cluster.leader_for(TP) == 1


def test_leader_named_by_a_broker_is_used(metadata):
    """KIP-951: leader and address from a Produce answer; an older or equal epoch changes nothing."""
    leader = Node(7, "new", 99)
    metadata.apply_leader(TP, leader, 9)
    metadata.request_topic("t", 0)
    metadata.begin(0, ())
    metadata.apply(answer(1, 1, epoch=3), 0)
    metadata.apply_leader(TP, leader, 3)
    assert metadata.cluster.leader_for(TP) == 1
    metadata.apply_leader(TP, leader, 4)
    assert (metadata.cluster.leader_for(TP), metadata.cluster.leader_epoch(TP)) == (7, 4)
    assert metadata.cluster.nodes[7] == leader
    assert metadata.cluster.leader_for(TopicPartition("t", 1)) == 1


def test_waiters_are_called_once(metadata):
    """After the next answer; one that raises does not keep the others, one that left is not called."""
    called = []
    metadata.add_waiter(lambda: called.append(1))
    metadata.add_waiter(lambda: 1 / 0)
    gone = metadata.add_waiter(lambda: called.append(2))
    metadata.add_waiter(lambda: called.append(3))
    assert metadata.has_waiters
    metadata.remove_waiter(gone)
    metadata.remove_waiter(gone)
    run_waiters(metadata.take_waiters())
    run_waiters(metadata.take_waiters())
    assert called == [1, 3]
    assert not metadata.has_waiters
