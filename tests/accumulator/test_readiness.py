"""What is ready, when to ask again, and what a drain takes: facts of Kafka's RecordAccumulator."""

from __future__ import annotations

import math

import pytest

from splashdam.model.values import TopicPartition
from splashdam.model.views.standing import Standing


def test_lingers_until_its_time(make_bench, make_cluster):
    """A batch that is not full waits for linger_ms from its creation, and says for how long."""
    bench, cluster = make_bench(linger_ms=5), make_cluster(1)
    bench.append(now_ms=10)
    assert bench.ready(cluster, 12) == (frozenset(), 3, frozenset())
    assert bench.ready(cluster, 15).nodes == {1}


def test_nothing_waits_for_ever(make_bench, make_cluster):
    """Without batches there is no next check."""
    assert make_bench().ready(make_cluster(1), 0) == (frozenset(), math.inf, frozenset())


def test_full_batch_is_ready_at_once(make_bench, make_cluster):
    """Full by size, or because another batch has been opened behind it."""
    bench, cluster = make_bench(batch_bytes=200), make_cluster(1, 2)
    bench.append(1, value=b"x" * 131)
    bench.append(0)
    assert bench.ready(cluster, 0).nodes == {2}
    bench.append(0)
    assert bench.ready(cluster, 0).nodes == {1, 2}


@pytest.mark.parametrize("reason", ["memory", "flush", "closed"])
def test_linger_is_cut_when_somebody_waits(make_bench, make_cluster, reason):
    """Memory waiters, a flush and closing make everything sendable, as long as they last."""
    bench, cluster = make_bench(linger_ms=100, buffer_memory=1100), make_cluster(1, 2)
    bench.append(0)
    assert bench.ready(cluster, 0).nodes == frozenset()
    if reason == "memory":
        ticket = bench.exhausted(partition=1).ticket
    elif reason == "flush":
        bench.accumulator.begin_flush()
    else:
        bench.accumulator.close()
    assert bench.ready(cluster, 0).nodes == {1}
    if reason == "memory":
        bench.accumulator.cancel(ticket)
    elif reason == "flush":
        bench.accumulator.end_flush()
    assert bench.ready(cluster, 0).nodes == (frozenset({1}) if reason == "closed" else frozenset())


def test_empty_queue_needs_no_leader(make_bench, make_cluster):
    """A leaderless partition is reported only while something waits for it."""
    bench = make_bench(linger_ms=0)
    bench.append(0)
    assert bench.ready(make_cluster(-1), 0).unknown_leader_topics == {"t"}
    bench.drain(make_cluster(1))
    assert bench.ready(make_cluster(-1), 0).unknown_leader_topics == frozenset()


def test_unknown_topic_counts_as_leaderless(make_bench, make_cluster):
    """A topic that has left the metadata is asked for again."""
    bench = make_bench()
    bench.append(0)
    check = bench.ready(make_cluster(topic="other"), 0)
    assert check.unknown_leader_topics == {"t"}
    assert check.next_check_ms == 1000  # its delivery timeout: it must expire all the same


def test_leaderless_batches_expire(make_bench, make_cluster):
    """The delivery timeout runs without a leader, too; later batches of the queue live on."""
    bench = make_bench(batch_bytes=150, delivery_timeout_ms=1000)
    old, young = bench.future(now_ms=0), bench.future(now_ms=500)
    assert bench.accumulator.expire(999) == []
    (expired,) = bench.accumulator.expire(1000)
    assert expired.outcome is old.outcome
    bench.accumulator.fail(expired, TimeoutError())
    assert old.done()
    assert not young.done()
    assert bench.ready(make_cluster(-1), 1000).next_check_ms == 500


def test_expired_open_batch_takes_no_more(make_bench):
    """The batch that expires may be the open one; the next record gets a new batch."""
    bench = make_bench()
    bench.append(now_ms=0)
    (expired,) = bench.accumulator.expire(1000)
    assert expired.record_count == 1
    assert bench.append(now_ms=1000).future.index == 0


def test_muted_partition_is_neither_ready_nor_drained(make_bench, make_cluster):
    """Without idempotence and with one request in flight the order is kept by muting."""
    bench, cluster = make_bench(linger_ms=0), make_cluster(1, 1)
    bench.append(0)
    bench.append(1)
    bench.accumulator.mute(TopicPartition("t", 0))
    assert [batch.topic_partition.partition for batch in bench.drain(cluster)[1]] == [1]
    assert bench.ready(cluster, 0).nodes == frozenset()
    bench.accumulator.unmute(TopicPartition("t", 0))
    assert bench.ready(cluster, 0).nodes == {1}


def test_backoff_grows_and_ends(make_bench, make_cluster):
    """100, 200, 400, 800, 1000, 1000 ms between attempts; flushing does not shorten it."""
    bench, cluster = make_bench(linger_ms=0, delivery_timeout_ms=1e9), make_cluster(1)
    bench.append()
    bench.accumulator.begin_flush()
    waits, now_ms = [], 0.0
    for _ in range(6):
        (batch,) = bench.drain(cluster, now_ms)[1]
        bench.accumulator.reenqueue(batch, now_ms)
        check = bench.ready(cluster, now_ms)
        assert check.nodes == frozenset()
        assert bench.drain(cluster, now_ms + check.next_check_ms - 1) == {}
        waits.append(check.next_check_ms)
        now_ms += check.next_check_ms
    assert waits == [100, 200, 400, 800, 1000, 1000]


def test_backoff_has_jitter(make_bench, make_cluster):
    """The random factor is 0.8 to 1.2, and the maximum holds after it."""
    for drawn, expected in [(0.0, 80), (1.0, 120)]:
        bench, cluster = make_bench(linger_ms=0, random=lambda drawn=drawn: drawn), make_cluster(1)
        bench.append()
        (batch,) = bench.drain(cluster)[1]
        bench.accumulator.reenqueue(batch, 0)
        assert bench.ready(cluster, 0).next_check_ms == pytest.approx(expected)


def test_new_leader_is_tried_without_waiting(make_bench, make_cluster):
    """KIP-951: backoff ends when the leader epoch has changed since the attempt."""
    bench = make_bench(linger_ms=0)
    bench.append()
    (batch,) = bench.drain(make_cluster(1, epoch=4))[1]
    bench.accumulator.reenqueue(batch, 0)
    assert bench.ready(make_cluster(1, epoch=4), 0).nodes == frozenset()
    assert bench.ready(make_cluster(2, epoch=-1), 0).nodes == frozenset()
    assert bench.ready(make_cluster(2, epoch=5), 0).nodes == {2}
    assert bench.drain(make_cluster(2, epoch=5), nodes=[2])[2] == [batch]


def test_retry_does_not_linger_again(make_bench, make_cluster):
    """After its backoff a retried batch is sent, however long linger is."""
    bench, cluster = make_bench(linger_ms=10_000, delivery_timeout_ms=1e6), make_cluster(1)
    bench.append(now_ms=0)
    (batch,) = bench.drain(cluster, 0)[1]
    bench.accumulator.reenqueue(batch, 0)
    assert bench.ready(cluster, 100).nodes == {1}


def test_drain_takes_lingering_neighbours(make_bench, make_cluster):
    """A node that gets a request gets all its partitions' batches; other nodes get nothing."""
    bench, cluster = make_bench(linger_ms=100), make_cluster(1, 1, 2)
    for partition in range(3):
        bench.append(partition)
    drained = bench.drain(cluster)
    assert [batch.topic_partition.partition for batch in drained[1]] == [0, 1]
    assert set(drained) == {1}


def test_drain_takes_one_batch_per_partition(make_bench, make_cluster):
    """Two batches of a partition never share a request."""
    bench = make_bench(batch_bytes=150)
    for _ in range(3):
        bench.append()
    assert [len(bench.drain(make_cluster(1)).get(1, ())) for _ in range(4)] == [1, 1, 1, 0]


def test_request_size_is_kept_but_for_one_large_batch(make_bench, make_cluster):
    """A request stops at max_request_size; a batch above it goes, alone."""
    bench, cluster = make_bench(batch_bytes=500), make_cluster(1, 1, 1)
    bench.append(0, value=b"x" * 300)
    bench.append(1, value=b"x" * 9000)
    bench.append(2, value=b"x" * 300)
    requests = []
    while drained := bench.drain(cluster, max_request_size=800):
        requests.append([batch.topic_partition.partition for batch in drained[1]])
    assert requests == [[0], [1], [2]]


def test_partitions_take_turns_per_node(make_bench, make_cluster):
    """With room for two batches in a request, the next drain begins with the third partition."""
    bench, cluster = make_bench(batch_bytes=150), make_cluster(1, 1, 1, 2)
    for partition in (0, 1, 2, 3):
        for _ in range(4):
            bench.append(partition)
    seen = []
    for turn in range(4):
        nodes = [1] if turn % 2 else [1, 2]
        drained = bench.drain(cluster, nodes=nodes, max_request_size=350)
        seen.append([batch.topic_partition.partition for batch in drained[1]])
    assert seen == [[0, 1], [2, 0], [1, 2], [0, 1]]


def test_held_partition_delays_nobody(make_bench, make_cluster):
    """A partition that the gate holds back is passed over, not waited for (Java's trap)."""

    class Gate:
        def holds(self, batch):
            return Standing.GAP if batch.topic_partition.partition == 0 else None

        def drained(self, batch):
            batch.base_sequence = 7

    bench, cluster = make_bench(linger_ms=0), make_cluster(1, 1, 1)
    for partition in range(3):
        bench.append(partition)
    gate = Gate()
    drained = bench.accumulator.drain(cluster, {1}, 1_000_000, 0, gate)
    assert [batch.topic_partition.partition for batch in drained[1]] == [1, 2]
    assert all(batch.base_sequence == 7 for batch in drained[1])
    check = bench.accumulator.ready(cluster, 0, gate)
    assert check.nodes == frozenset()
    assert check.next_check_ms == 1000  # no spinning: only its expiry is left


def test_retries_go_in_sequence_order(make_bench, make_cluster):
    """Numbered batches come back before new ones and in order, also across the wrap of sequences."""
    numbers = iter([2**31 - 2, 2**31 - 1, 0, 1])

    class Gate:
        def holds(self, _batch):
            return None

        def drained(self, batch):
            if not batch.sequenced:
                batch.base_sequence = next(numbers)

    bench, cluster, gate = make_bench(batch_bytes=150, linger_ms=0), make_cluster(1), Gate()
    for _ in range(5):
        bench.append()
    sent = [bench.accumulator.drain(cluster, {1}, 1_000_000, 0, gate)[1][0] for _ in range(4)]
    for batch in (sent[2], sent[0], sent[3], sent[1]):
        bench.accumulator.reenqueue(batch, 0, at_once=True)
    again = [bench.accumulator.drain(cluster, {1}, 1_000_000, 0, gate)[1][0] for _ in range(4)]
    assert again == sent
    assert bench.accumulator.queued_batches(TopicPartition("t", 0)) == 1


def test_without_sequences_a_retry_goes_in_front(make_bench, make_cluster):
    """The oldest records are sent first."""
    bench, cluster = make_bench(batch_bytes=150, linger_ms=0), make_cluster(1)
    bench.append()
    bench.append()
    (first,) = bench.drain(cluster)[1]
    bench.accumulator.reenqueue(first, 0, at_once=True)
    assert bench.drain(cluster)[1] == [first]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 0, 1), (2, 1, 0), (1, 2, 0)])
def test_retries_without_sequences_keep_their_order(make_bench, make_cluster, order):
    """Batches that fail one after the other go again as they were sent, in whatever order they came back."""
    bench, cluster = make_bench(batch_bytes=150, linger_ms=0), make_cluster(1)
    for _ in range(4):
        bench.append()  # all within one millisecond
    sent = [bench.drain(cluster)[1][0] for _ in range(3)]
    for number in order:
        bench.accumulator.reenqueue(sent[number], 0, at_once=True)
    again = [bench.drain(cluster)[1][0] for _ in order]
    assert again == [sent[number] for number in sorted(order)]


def test_old_retry_behind_a_young_one_expires(make_bench, make_cluster):
    """Expiry looks at heads alone, so the oldest batch has to be the head."""
    bench, cluster = make_bench(batch_bytes=150, linger_ms=0, delivery_timeout_ms=1000), make_cluster(1)
    bench.append(now_ms=0)
    bench.append(now_ms=900)
    old, young = (bench.drain(cluster)[1][0] for _ in range(2))
    bench.accumulator.reenqueue(old, 950)
    bench.accumulator.reenqueue(young, 950)
    assert bench.accumulator.expire(1000) == [old]
    assert bench.accumulator.expire(1900) == [young]


def test_gate_that_raises_loses_no_batch(make_bench, make_cluster):
    """Batches are numbered before any of them leaves its queue."""

    class Gate:
        def holds(self, _batch):
            return None

        def drained(self, batch):
            if batch.topic_partition.partition == 1:
                raise RuntimeError("bug")

    bench, cluster = make_bench(linger_ms=0), make_cluster(1, 1)
    futures = [bench.future(partition) for partition in range(2)]
    with pytest.raises(RuntimeError, match="bug"):
        bench.accumulator.drain(cluster, {1}, 1_000_000, 0, Gate())
    assert bench.accumulator.statistics().queued_batches == 2
    drained = bench.drain(cluster)[1]
    assert [batch.outcome for batch in drained] == [future.outcome for future in futures]


def test_a_decision_tells_how_each_partition_stands(make_bench, make_cluster):
    """Whoever looks is told by the decision itself, of every partition, why it goes or waits and how long."""
    bench = make_bench(linger_ms=50, batch_bytes=200)
    cluster = make_cluster(1, 1, 1, -1, 1, 1)
    for partition in (1, 3, 4):
        bench.append(partition)
    bench.append(0, value=b"x" * 131)
    bench.append(2)
    bench.accumulator.mute(TopicPartition("t", 2))
    bench.append(5)
    bench.append(5)
    told = {}

    class Gate:
        def holds(self, batch):
            return Standing.GAP if batch.topic_partition.partition == 4 else None

        def drained(self, batch):
            raise AssertionError(batch)

    def note(queue, leader, standing, left_ms):
        told[queue[0].topic_partition.partition] = (leader, standing, left_ms)

    check = bench.accumulator.ready(cluster, 20, Gate(), note=note)
    assert check == bench.accumulator.ready(cluster, 20, Gate())
    assert told == {
        0: (1, Standing.FULL, 0),
        1: (1, Standing.LINGERS, 30),
        2: (1, Standing.MUTED, math.inf),
        3: (-1, Standing.NO_LEADER, math.inf),
        4: (1, Standing.GAP, math.inf),
        5: (1, Standing.FOLLOWED, 0),
    }


def test_a_retry_stands_in_its_backoff(make_bench, make_cluster):
    """The time that is left is the backoff's."""
    bench, cluster = make_bench(linger_ms=0), make_cluster(1)
    bench.append()
    (batch,) = bench.drain(cluster)[1]
    bench.accumulator.reenqueue(batch, 0)
    told = []
    bench.accumulator.ready(cluster, 40, note=lambda *found: told.append(found[2:]))
    assert told == [(Standing.BACKS_OFF, 60)]
