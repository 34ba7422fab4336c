"""Three brokers: what is acknowledged, by whom it is kept, and what becomes of it when leaders move."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio
from support.broker.broker_talk import NOW_MS, batch, produce, produce_request
from support.broker.cluster_kit import NODES, T0, open_cluster
from trio.testing import MockClock

from splashdam.embedded_broker.controller.election import moved
from splashdam.embedded_broker.replication.partition import Partition
from splashdam.model.broker_errors import ErrorCode, KafkaStorageError, NotLeaderOrFollowerError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.change_log import ChangeLog
from splashdam.storage.files.memory import Fault
from splashdam.storage.log import Log
from splashdam.storage.log_files import LogFiles
from splashdam.storage.manager.topic_registry import NewTopic

NONE = 0


async def test_followers_copy_the_leaders_log_and_learn_the_high_watermark(
    autojump_clock: MockClock,
) -> None:
    """The same bytes; the high watermark comes with the next fetch."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a", b"b") == NONE
        assert await cluster.produce(b"c") == NONE
        assert cluster.nodes[1].log.high_watermark == 3
        await cluster.settle()
        for node in cluster.nodes.values():
            assert node.log.high_watermark == node.log.log_end_offset == 3
            assert cluster.values(node.node_id) == [b"a", b"b", b"c"]
        assert cluster.state.isr == (1, 2, 3)


async def test_only_the_leader_takes_records(autojump_clock: MockClock) -> None:
    """Others answer 6, also those that have the log."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        for node_id in (2, 3):
            code = await cluster.produce(b"x", node_id=node_id)
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_records_with_acks_all_survive_a_failover(autojump_clock: MockClock) -> None:
    """The leader is killed; the next one has every record, and takes more; the old one comes back."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3, min_insync_replicas="2")
        for number in range(20):
            assert await cluster.produce(b"%d" % number) == NONE
        await cluster.nodes[1].end(kill=True)
        assert (cluster.state.leader, cluster.state.isr) == (2, (2, 3))
        assert cluster.values(2) == [b"%d" % number for number in range(20)]
        assert await cluster.produce(b"20") == NONE
        await cluster.start(1)
        await cluster.settle()
        assert cluster.state.isr == (1, 2, 3)
        for node_id in cluster.nodes:
            assert cluster.values(node_id) == [b"%d" % number for number in range(21)]


async def test_records_with_acks_1_may_be_lost(autojump_clock: MockClock) -> None:
    """acks=1: the followers had no line to the leader; its own tail goes when it follows another."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"safe") == NONE
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        assert await cluster.produce(b"lost", acks=1) == NONE
        await cluster.nodes[1].end(kill=True)
        assert await cluster.produce(b"other") == NONE
        cluster.join()
        await cluster.start(1)
        await cluster.settle()
        for node_id in cluster.nodes:
            assert cluster.values(node_id) == [b"safe", b"other"]


async def test_too_few_in_sync(autojump_clock: MockClock) -> None:
    """acks=all is refused with 19 and nothing is written; acks=1 is taken, and not read by anybody yet."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3, min_insync_replicas="2")
        assert await cluster.produce(b"a") == NONE
        for node_id in (2, 3):
            await cluster.nodes[node_id].end()
        assert await cluster.produce(b"b") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await cluster.produce(b"c", acks=1) == NONE
        assert cluster.values(1) == [b"a", b"c"]
        assert cluster.values(1, up_to_high_watermark=True) == [b"a"]
        await cluster.start(3)
        await cluster.settle()
        assert cluster.state.isr == (1, 3)
        assert cluster.values(1, up_to_high_watermark=True) == [b"a", b"c"]
        assert await cluster.produce(b"d") == NONE


async def test_a_slow_follower_makes_producers_wait_and_then_leaves(autojump_clock: MockClock) -> None:
    """7 when the producer's time is up, and the record stays; after replica.lag.time.max.ms it goes on."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a") == NONE
        cluster.cut(1, 3)
        assert await cluster.produce(b"b") == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.values(1) == [b"a", b"b"]
        assert cluster.values(1, up_to_high_watermark=True) == [b"a"]
        await cluster.settle(50)
        assert cluster.state.isr == (1, 2)
        assert cluster.values(1, up_to_high_watermark=True) == [b"a", b"b"]
        assert await cluster.produce(b"c") == NONE
        cluster.join()
        await cluster.settle()
        assert cluster.state.isr == (1, 2, 3)
        assert cluster.values(3) == [b"a", b"b", b"c"]


async def test_requests_sent_together_time_out_together(autojump_clock: MockClock) -> None:
    """Each has the time that its client gives it, and not that of those before it on top."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        cluster.cut(1, 3)
        talk, asked = await cluster.talk(1), [produce_request("t", batch(b"%d" % each)) for each in range(3)]
        began = trio.current_time()
        await talk.send_together(*asked, version=9)
        for _ in asked:
            code = (await talk.answer()).responses[0].partition_responses[0].error_code
            assert code == ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() - began < 1.5


async def test_the_isr_shrank_after_the_append(autojump_clock: MockClock) -> None:
    """KIP-966: the high watermark stands still, and the answer is 7; one that had passed it answers 20."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, min_insync_replicas="2")
        assert await cluster.produce(b"a") == NONE
        cluster.cut(1, 2)
        codes = []

        async def send() -> None:
            codes.append(await cluster.produce(b"b"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.sleep(0.1)
            await cluster.nodes[2].end(kill=True)
        assert codes == [ErrorCode.REQUEST_TIMED_OUT]
        assert cluster.nodes[1].log.high_watermark == 1


async def test_waiting_producers_learn_that_the_leader_has_changed(autojump_clock: MockClock) -> None:
    """6 at once, not after their time."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a") == NONE
        cluster.cut(1, 2)
        codes = []

        async def send() -> None:
            codes.append(await cluster.produce(b"b"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.sleep(0.1)
            began = trio.current_time()
            cluster.controller.change_partitions(
                {T0: cluster.state._replace(leader=3, leader_epoch=1, partition_epoch=1)}
            )
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert trio.current_time() - began < 0.5


async def test_a_batch_is_not_acknowledged_if_another_leader_replaced_it(
    autojump_clock: MockClock,
) -> None:
    """It waits behind another partition of its request; this broker leads again when it is its turn."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        replication = cluster.nodes[1].log.replication
        assert isinstance(replication, Partition)
        term = replication.term
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        assert await cluster.produce(b"lost", acks=1) == NONE
        cluster.controller.change_partitions({T0: moved(cluster.state, 2, lambda _: True)})
        assert await cluster.produce(b"instead", acks=1) == NONE
        cluster.join()
        await cluster.settle()
        cluster.controller.change_partitions({T0: moved(cluster.state, 1, lambda _: True)})
        await cluster.settle()
        assert cluster.values(1, up_to_high_watermark=True) == [b"instead"]
        with pytest.raises(NotLeaderOrFollowerError):
            await replication.wait_replicated(1, term)
        await replication.wait_replicated(1, replication.term)


@pytest.mark.parametrize("unclean", ["false", "true"])
async def test_logs_that_parted_become_one(autojump_clock: MockClock, unclean: str) -> None:
    """Several epochs on either side: each is cut to the end of the last common one."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3, unclean_leader_election_enable=unclean)
        assert await cluster.produce(b"common") == NONE
        await cluster.settle()
        for node_id in (2, 3):
            cluster.cut(1, node_id)
        for number in range(3):
            assert await cluster.produce(b"own %d" % number, acks=1) == NONE
        await cluster.nodes[1].end(kill=True)
        assert await cluster.produce(b"theirs 1") == NONE
        await cluster.nodes[2].end(kill=True)
        assert await cluster.produce(b"theirs 2") == NONE
        cluster.join()
        await cluster.start(1, 2)
        await cluster.settle()
        for node_id in cluster.nodes:
            assert cluster.values(node_id) == [b"common", b"theirs 1", b"theirs 2"]
            assert [cluster.nodes[node_id].log.end_of_epoch(epoch) for epoch in (0, 1, 2)] == [
                (0, 1),
                (1, 2),
                (2, 3),
            ]


async def test_a_log_below_the_leaders_start_starts_again(autojump_clock: MockClock) -> None:
    """A topic that was deleted meanwhile is not fetched."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3, segment_bytes="100")
        await cluster.nodes[3].end()
        for number in range(6):
            assert await cluster.produce(b"%d" % number) == NONE
        log = cluster.nodes[1].log
        log.advance_log_start(4)
        log.delete_old_segments(wall_ms=0, now_ms=0)
        await cluster.start(3)
        await cluster.settle()
        assert cluster.state.isr == (1, 2, 3)
        assert cluster.nodes[3].log.log_start_offset == 4
        assert cluster.values(3) == [b"4", b"5"]
        assert cluster.nodes[2].log.log_start_offset == 4


async def test_a_restart_goes_on_from_the_checkpoint(autojump_clock: MockClock) -> None:
    """All brokers end; nothing that was acknowledged is missing, and the high watermark is found again."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a") == NONE
        await cluster.settle(60)
        for node in cluster.nodes.values():
            await node.end()
        await cluster.start()
        await cluster.settle()
        assert cluster.state.isr == (1, 2, 3)
        assert await cluster.produce(b"b") == NONE
        await cluster.settle()
        for node_id in cluster.nodes:
            assert cluster.values(node_id, up_to_high_watermark=True) == [b"a", b"b"]


async def test_replicas_that_are_added_catch_up_and_those_that_go_are_removed(
    autojump_clock: MockClock,
) -> None:
    """A reassignment: one replica becomes two others."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1)
        assert await cluster.produce(b"a") == NONE
        assert cluster.nodes[1].log.replication is None
        cluster.controller.change_partitions(
            {
                T0: cluster.state._replace(
                    replicas=(2, 3, 1), adding_replicas=(2, 3), removing_replicas=(1,), partition_epoch=1
                )
            }
        )
        assert await cluster.produce(b"b") == NONE
        await cluster.settle(60)
        assert set(cluster.state.replicas) == {2, 3}
        assert T0 not in cluster.nodes[1].broker.logs.logs
        assert not [e for e in cluster.nodes[1].files.list_directory("/data") if e.name.startswith("t-0")]
        assert await cluster.produce(b"c") == NONE
        await cluster.settle()
        for node_id in (2, 3):
            assert cluster.values(node_id, up_to_high_watermark=True) == [b"a", b"b", b"c"]


async def test_a_lost_answer_of_the_controller_is_asked_again(autojump_clock: MockClock) -> None:
    """Until then the one that may be in sync counts."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        await cluster.nodes[2].end()
        cluster.lines[1].is_cut = True
        await cluster.start(2)
        await cluster.settle()
        assert cluster.state.isr == (1,)
        partition = cluster.nodes[1].log.replication
        assert isinstance(partition, Partition)
        assert partition.leading().proposed == {1, 2}
        cluster.lines[1].is_cut = False
        await cluster.settle(20)
        assert cluster.state.isr == (1, 2)
        assert partition.leading().proposed is None


async def test_flush_messages_holds_on_followers(autojump_clock: MockClock) -> None:
    """Records that all replicas acknowledged survive a power cut of all brokers."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3, flush_messages="1")
        for node in cluster.nodes.values():
            node.files.sync_directory("/data/t-0")
        for number in range(3):
            assert await cluster.produce(b"%d" % number) == NONE
        for node in cluster.nodes.values():
            assert node.log.recovery_point == 3


async def test_a_disk_that_refuses_a_follower(autojump_clock: MockClock) -> None:
    """It falls behind, and catches up when the disk is well again."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        cluster.nodes[2].files.inject(Fault(errno.ENOSPC, times=None))
        assert await cluster.produce(b"a") == ErrorCode.REQUEST_TIMED_OUT
        await cluster.settle(50)
        assert cluster.state.isr == (1,)
        cluster.nodes[2].files.heal()
        await cluster.settle()
        assert cluster.state.isr == (1, 2)
        assert cluster.values(2) == [b"a"]


async def test_a_refused_truncation_was_passed_over_in_silence_and_not_finished(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log had become shorter, so the answer seemed stale; it was fetched on, or led, half truncated."""
    cut_at, refused, refuses = LogFiles.cut_at, [0], [True]

    def refusing(files: LogFiles, offset: int, ended: Callable[[int], None]) -> None:
        cut_at(files, offset, ended)
        if refuses[0]:
            refused[0] += 1
            raise KafkaStorageError("the disk refuses")

    monkeypatch.setattr(LogFiles, "cut_at", refusing)
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, unclean_leader_election_enable="true")
        assert await cluster.produce(b"common") == NONE
        await cluster.settle()
        cluster.cut(1, 2)
        assert await cluster.produce(b"cut off", acks=1) == NONE
        await cluster.nodes[1].end(kill=True)
        assert await cluster.produce(b"theirs", acks=1) == NONE
        cluster.join()
        await cluster.start(1)
        await cluster.settle()
        assert refused[0] > 1
        assert "the disk refuses" in caplog.text
        assert cluster.values(1) == [b"common"]
        await cluster.nodes[2].end(kill=True)
        await cluster.settle()
        assert cluster.state.leader == 1
        assert await cluster.produce(b"x", acks=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        refuses[0] = False
        await cluster.settle(50)
        assert await cluster.produce(b"new", acks=1) == NONE
        assert cluster.values(1) == [b"common", b"new"]


async def test_an_unexpected_error_in_one_partition_does_not_stop_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fetcher logs it, and goes on with the others on the same connection."""
    taken = Log.append_as_follower

    def append_as_follower(log: Log, batches: memoryview, *, now_ms: int) -> int:
        if log.topic_partition.topic == "bad":
            raise ZeroDivisionError("a bug")
        return taken(log, batches, now_ms=now_ms)

    monkeypatch.setattr(Log, "append_as_follower", append_as_follower)
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        cluster.controller.create_topics([NewTopic("bad", 1, assignments=((1, 2),))], lambda _: None)
        talk = await cluster.talk(1)
        assert (await produce(talk, "bad", batch(b"x"), acks=1)).error_code == NONE
        await cluster.settle(1)
        connections = len(cluster.nodes[2].streams)
        for number in range(3):
            assert await cluster.produce(b"%d" % number) == NONE
            await cluster.settle(1)
        assert len(cluster.nodes[2].streams) == connections
        assert "a bug" in caplog.text


async def test_followers_join_the_isrs_of_many_partitions_with_few_syncs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each fetch that tells of them, once one for each partition: 591 of them took a minute."""
    syncs: list[int] = []
    append = ChangeLog.append

    def counted(self: ChangeLog, *changes: object) -> None:
        syncs.append(len(changes))
        append(self, *changes)

    async with open_cluster(autojump_clock) as cluster:
        assignments = [tuple(NODES[(first + at) % 3] for at in range(3)) for first in range(60)]
        cluster.controller.create_topics([NewTopic("many", 60, {}, assignments=assignments)], lambda _: None)
        await cluster.settle()
        await cluster.nodes[3].end(kill=True)
        partitions = cluster.controller.state.partitions
        assert all(3 not in each.isr for each in partitions.values())
        monkeypatch.setattr(ChangeLog, "append", counted)
        await cluster.start(3)
        await cluster.settle()
        assert all(set(each.isr) == set(NODES) for each in partitions.values())
        assert 1 < len(syncs) <= 6


async def test_followers_leave_the_isrs_of_many_partitions_with_one_sync_of_each_leader(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at all that have fallen behind is one question to the controller."""
    async with open_cluster(autojump_clock, replica_lag_time_max_ms=10_000) as cluster:
        cluster.controller.create_topics(
            [NewTopic("many", 60, {}, assignments=[(1, 2, 3)] * 60)], lambda _: None
        )
        await trio.sleep(60)
        cluster.cut(1, 3)
        leader = cluster.nodes[1].broker
        data = batch(b"a")
        for number in range(60):
            log = leader.logs.logs[TopicPartition("many", number)]
            log.append_as_leader(data, now_ms=NOW_MS)
            leader.parking.appended(log.topic_partition, len(data), is_visible=False)
        before = cluster.controller.changes
        await trio.sleep(20)
        assert all(each.isr == (1, 2) for each in cluster.controller.state.partitions.values())
        assert cluster.controller.changes <= before + 2
