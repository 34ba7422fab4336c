"""What becomes of records and of the producer after each kind of answer (R1 to R4)."""

from __future__ import annotations

import pytest
import trio
from support.scripted.cluster import Trouble

from splashdam.model.broker_errors import (
    ClusterAuthorizationFailedError,
    ErrorCode,
    InvalidRecordError,
    KafkaStorageError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
    error_class,
)
from splashdam.model.errors import InvalidMetadataError, KafkaTimeoutError, ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FutureCell
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.produce import ProduceRequest

REFUSED = [-1, 17, 18, 21, 29, 32, 42, 43, 44, 47, 48, 76, 87, 120, 1]
RETRIED = [2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84]
RETRIED += [88, 89, 100, 103, 106]


@pytest.mark.parametrize("code", [*REFUSED, 10])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_refused_record_fails_alone(make_rig, autojump_clock, code, idempotent):
    """Its own future gets the error; the next sends, to this and to another topic, succeed (R1, R3)."""
    rig = make_rig(cluster={"topics": {"t": 1, "u": 1}}, enable_idempotence=idempotent)
    async with rig.running():
        assert await rig.send_and_wait(b"before") == 0
        rig.cluster.produce_script.append(Trouble(code=code))
        error = await rig.send_and_wait(b"bad")
        assert type(error) is error_class(code)
        assert "t-0" in str(error)
        assert await rig.send_and_wait(b"after") == 1
        assert await rig.send_and_wait(b"elsewhere", topic="u") == 0
        assert rig.sender.fatal_error is None
    assert rig.values() == [b"before", b"after"]


@pytest.mark.parametrize("code", RETRIED)
@pytest.mark.parametrize("idempotent", [True, False])
async def test_retriable_error_is_retried(make_rig, autojump_clock, code, idempotent):
    """Three times the error, then success, with the same numbers; stale metadata are asked for again."""
    rig = make_rig(enable_idempotence=idempotent)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        asked = len(rig.cluster.requests(MetadataRequest))
        rig.cluster.produce_script.extend([Trouble(code=code)] * 3)
        assert await rig.send_and_wait(b"x") == 1
        stale = len(rig.cluster.requests(MetadataRequest)) > asked
        assert stale == issubclass(error_class(code), InvalidMetadataError)
        assert rig.sender.statistics().retries == 3
        assert 500 < rig.clock.now_ms() < 1000  # about 100 + 200 + 400 ms
    assert rig.values() == [b"warm", b"x"]


@pytest.mark.parametrize("code", [7, 20, 56])
async def test_written_and_answered_with_an_error(make_rig, autojump_clock, code):
    """The records are in the log already; only their numbers keep the retry from writing them again."""
    rig = make_rig()
    rig.cluster.produce_script.append(Trouble(code=code, write=True))
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
    assert rig.values() == [b"x"]
    assert rig.cluster.logs[TopicPartition("t", 0)].repeats == 1


async def test_lost_answer_is_recognised(make_rig, autojump_clock):
    """The connection breaks after the broker has written: the repeat gets the old offset."""
    rig = make_rig()
    rig.cluster.produce_script.extend([Trouble(), Trouble(then="hang_up")])
    async with rig.running():
        await rig.send_and_wait(b"x")
        assert await rig.send_and_wait(b"y") == 1
    assert rig.values() == [b"x", b"y"]


async def test_duplicate_sequence_counts_as_success(make_rig, autojump_clock):
    """46: an old broker says it has the batch; the offset is not known, the numbers go on."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"x")
        rig.cluster.produce_script.append(Trouble(code=46, write=True))
        assert await rig.send_and_wait(b"y") == -1
        assert await rig.send_and_wait(b"z") == 2
        assert rig.sender.statistics().epoch_bumps == 0


@pytest.mark.parametrize("code", [45, 59])
@pytest.mark.parametrize("behind", [0, 4])
async def test_sequence_errors_lose_nothing(make_rig, autojump_clock, code, behind):
    """45 and 59 once: this record and everything behind it arrive once, in order (R2)."""
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.append(Trouble(code=code))
        futures = [rig.send(b"%d" % number) for number in range(1 + behind)]
        assert [await rig.outcome(future) for future in futures] == list(range(1, 2 + behind))
        assert rig.sender.statistics().epoch_bumps == 1
        assert await rig.send_and_wait(b"next") == 2 + behind
    assert rig.values() == [b"warm", *(b"%d" % number for number in range(1 + behind)), b"next"]
    headers = rig.cluster.logs[TopicPartition("t", 0)].headers
    assert [header.producer_epoch for header in headers] == [0] + [1] * (2 + behind)
    assert [header.base_sequence for header in headers[1:]] == list(range(2 + behind))


async def test_a_batch_behind_one_that_failed_fails_for_its_reason(make_rig, autojump_clock):
    """The broker answers 45 to what comes behind; once the records were told that the cluster lost some."""
    rig = make_rig(batch_bytes=0, retries=1)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([Trouble(code=code) for code in (56, 45, 45, 56, 45)])
        futures = [rig.send(b"%d" % number) for number in range(3)]
        outcomes = [await rig.outcome(future) for future in futures]
        assert [type(each) for each in outcomes[:2]] == [KafkaStorageError] * 2
        assert "behind one that failed" in str(outcomes[1])
        assert OutOfOrderSequenceNumberError not in map(type, outcomes)
        assert isinstance(await rig.send_and_wait(b"next"), int)


async def test_forgotten_producer_with_unknown_log_start_is_retried(make_rig, autojump_clock):
    """After error 59 without a log start offset the batch keeps its numbers, and no new epoch is needed."""
    rig = make_rig()
    rig.cluster.spoken[ProduceRequest] = (3, 4)  # log start offsets came with version 5
    rig.cluster.produce_script.append(Trouble(code=59))
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert rig.sender.statistics().epoch_bumps == 0


async def test_poison_in_a_full_pipeline(make_rig, autojump_clock):
    """The third of six batches is refused: the five others arrive, in order, under legal numbers."""
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([Trouble(), Trouble(), Trouble(code=87)])
        futures = [rig.send(b"%d" % number) for number in range(6)]
        outcomes = [await rig.outcome(future) for future in futures]
        assert isinstance(outcomes.pop(2), InvalidRecordError)
        assert outcomes == [1, 2, 3, 4, 5]
    assert rig.values() == [b"warm", b"0", b"1", b"3", b"4", b"5"]


async def test_refusal_of_what_may_be_written(make_rig, autojump_clock):
    """Two batches are written, their answers lost; the first repeat is then not authorised.

    The second must not get new numbers, since it is in the log: its repeat is recognised.
    """
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([Trouble(code=7, write=True), Trouble(code=7, write=True)])
        rig.cluster.produce_script.append(Trouble(code=29))
        first, second = rig.send(b"1"), rig.send(b"2")
        assert isinstance(await rig.outcome(first), TopicAuthorizationFailedError)
        assert await rig.outcome(second) == 2
        assert await rig.send_and_wait(b"3") == 3
    assert rig.values() == [b"warm", b"1", b"2", b"3"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_too_large_batch_is_split(make_rig, autojump_clock, idempotent):
    """Halved as often as it takes; offsets, order and numbers go on as if it had never been one (R8)."""
    most = 5 if idempotent else 1  # without numbers, only one request at a time keeps the order
    rig = make_rig(
        cluster={"max_batch_bytes": 400},
        linger_ms=5,
        enable_idempotence=idempotent,
        max_in_flight_requests_per_connection=most,
    )
    async with rig.running():
        futures = [rig.send(b"%02d" % number + b"x" * 98) for number in range(30)]
        outcomes = rig.guard.run(rig.accumulator.begin_flush)
        rig.wakeup.wake()
        assert [await rig.outcome(future) for future in futures] == list(range(30))
        assert all(outcome.done() for outcome in outcomes)
        rig.accumulator.end_flush()
        assert rig.sender.statistics().splits == 13
        assert rig.sender.statistics().epoch_bumps == 0
        assert await rig.send_and_wait(b"next") == 30
    assert [value[:2] for value in rig.values()[:30]] == [b"%02d" % number for number in range(30)]


@pytest.mark.parametrize("first", [Trouble(then="hang_up"), Trouble(code=7, write=True)])
async def test_a_written_batch_is_not_written_again_in_parts(make_rig, autojump_clock, first):
    """Its answer is lost, and its repeat is called too large: the topic's limit was lowered in between.

    Its parts have its numbers, and a broker that has the whole batch takes none of them.
    """
    rig = make_rig(linger_ms=5)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([first, Trouble(code=10)])
        errors = [await rig.outcome(future) for future in [rig.send(b"%d" % number) for number in range(4)]]
        assert {type(error) for error in errors} == {OutOfOrderSequenceNumberError}
        assert "may have been written already" in str(errors[0])
        assert await rig.send_and_wait(b"next") == 5
        assert rig.sender.statistics().splits == 1
    assert rig.values() == [b"warm", b"0", b"1", b"2", b"3", b"next"]


async def test_a_batch_was_not_split_since_it_might_be_written(make_rig, autojump_clock):
    """A request breaks on its way, so that its batch may have been written. Later the broker calls the batch
    too large: it was not written, and all of its records can be."""
    rig = make_rig(cluster={"max_batch_bytes": 400}, linger_ms=5)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.append(Trouble(then="refuse"))
        futures = [rig.send(b"%d" % number + b"x" * 98) for number in range(8)]
        assert [await rig.outcome(future) for future in futures] == list(range(1, 9))
        assert await rig.send_and_wait(b"next") == 9
        assert rig.sender.statistics().epoch_bumps == 0
    assert [value[:1] for value in rig.values()[1:9]] == [b"%d" % number for number in range(8)]


async def test_single_record_too_large(make_rig, autojump_clock):
    """Nothing is left to split: it fails with 10, its neighbours are delivered."""
    rig = make_rig(cluster={"max_batch_bytes": 400}, linger_ms=5)
    async with rig.running():
        small, large, last = rig.send(b"s"), rig.send(b"L" * 1000), rig.send(b"l")
        assert isinstance(await rig.outcome(large), MessageTooLargeError)
        assert await rig.outcome(small) == 0
        assert await rig.outcome(last) == 1


async def test_record_errors_name_the_culprit(make_rig, autojump_clock):
    """KIP-467: one named record gets the batch's error, the others one that says: safe to send again."""
    rig = make_rig(linger_ms=5)
    rig.cluster.produce_script.append(Trouble(code=87, record_errors={1: "no key"}))
    async with rig.running():
        futures = [rig.send(b"%d" % number) for number in range(3)]
        errors = [await rig.outcome(future) for future in futures]
        assert all(isinstance(error, InvalidRecordError) for error in errors)
        assert ["safe to send again" in str(error) for error in errors] == [True, False, True]
        assert "no key" in str(errors[1])


async def test_several_record_errors_have_their_own_texts(make_rig, autojump_clock):
    """Several named records get InvalidRecord with their own texts."""
    rig = make_rig(linger_ms=5)
    rig.cluster.produce_script.append(Trouble(code=32, record_errors={0: "too old", 2: "too new"}))
    async with rig.running():
        futures = [rig.send(b"%d" % number) for number in range(3)]
        texts = [str(await rig.outcome(future)) for future in futures]
        assert "too old" in texts[0]
        assert "safe to send again" in texts[1]
        assert "too new" in texts[2]


async def test_fatal_error_ends_the_producer(make_rig, autojump_clock):
    """31: everything pending and everything later fails with it, at once."""
    rig = make_rig(cluster={"topics": {"t": 2}}, batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.append(Trouble(code=31))
        futures = [rig.send(b"%d" % number, partition=number % 2) for number in range(8)]
        errors = [await rig.outcome(future) for future in futures]
        assert isinstance(errors[0], ClusterAuthorizationFailedError)
        assert isinstance(await rig.send_and_wait(b"later"), ClusterAuthorizationFailedError)
        assert isinstance(rig.sender.fatal_error, ClusterAuthorizationFailedError)


async def test_fatal_codes_only_fail_the_batch_without_idempotence(make_rig, autojump_clock):
    """A plain producer treats 31 as any refusal."""
    rig = make_rig(enable_idempotence=False)
    rig.cluster.produce_script.append(Trouble(code=31))
    async with rig.running():
        assert isinstance(await rig.send_and_wait(b"x"), ClusterAuthorizationFailedError)
        assert await rig.send_and_wait(b"y") == 0


async def test_new_leader_is_followed_at_once(make_rig, autojump_clock):
    """KIP-951: error 6 names the new leader; the batch goes there without backoff and without metadata."""
    rig = make_rig(cluster={"nodes": 2})
    async with rig.running():
        await rig.send_and_wait(b"x")
        rig.cluster.move_leader(TopicPartition("t", 0), 2)
        start_ms = rig.clock.now_ms()
        assert await rig.send_and_wait(b"y") == 1
        assert rig.clock.now_ms() == start_ms


async def test_new_leader_is_found_by_metadata(make_rig, autojump_clock):
    """An older broker does not name it; one backoff of the metadata is enough (R27)."""
    rig = make_rig(cluster={"nodes": 2})
    rig.cluster.spoken[ProduceRequest] = (3, 9)
    async with rig.running():
        await rig.send_and_wait(b"x")
        rig.cluster.move_leader(TopicPartition("t", 0), 2)
        await trio.sleep(1)
        start_ms = rig.clock.now_ms()
        assert await rig.send_and_wait(b"y") == 1
        assert rig.clock.now_ms() - start_ms < 10


@pytest.mark.parametrize("code", [31, 35, 42])
async def test_no_producer_id(make_rig, autojump_clock, code):
    """A refused InitProducerId fails what waits, not what comes after: it is asked for again."""
    rig = make_rig()
    rig.cluster.id_script.append(Trouble(code=code))
    async with rig.running():
        error = await rig.send_and_wait(b"x")
        assert type(error) is error_class(code)
        assert "no producer id for idempotence" in str(error)
        await trio.sleep(1)
        assert len(rig.cluster.requests(InitProducerIdRequest)) == 1  # nothing waits for one
        assert await rig.send_and_wait(b"y") == 0
        assert rig.sender.fatal_error is None


async def test_producer_id_is_retried(make_rig, autojump_clock):
    """Retriable refusals and lost answers only cost time."""
    rig = make_rig()
    rig.cluster.id_script.extend([Trouble(code=14), Trouble(then="hang_up"), Trouble(code=51)])
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert 500 < rig.clock.now_ms() < 1200


async def test_a_producer_id_that_is_none(make_rig, autojump_clock, monkeypatch):
    """With -1 brokers check no numbers, and a retry may write twice: another one is asked for."""
    rig = make_rig()
    usual, given = rig.cluster.respond, [-1, -(2**63)]

    def respond(broker, message, version, trouble):
        response = usual(broker, message, version, trouble)
        if isinstance(message, InitProducerIdRequest) and given:
            response.producer_id = given.pop()
        return response

    monkeypatch.setattr(rig.cluster, "respond", respond)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
    assert not given


async def test_answer_without_the_partition(make_rig, autojump_clock, monkeypatch):
    """A response that leaves a partition out is no answer: the batch is sent again."""
    rig = make_rig()
    usual, calls = rig.cluster.respond, []

    def respond(broker, message, version, trouble):
        response = usual(broker, message, version, trouble)
        if isinstance(message, ProduceRequest) and not calls:
            calls.append(response.responses.pop())
        return response

    monkeypatch.setattr(rig.cluster, "respond", respond)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
    assert rig.values() == [b"x"]


@pytest.mark.parametrize("number", [-1, 3_000_000])
async def test_hostile_partition_number_does_not_kill_the_sender(
    make_rig, autojump_clock, monkeypatch, number
):
    """The answer is as good as none: it is named as the failure, and the question is put again."""
    rig = make_rig()
    usual, failures = rig.cluster.respond, []

    def respond(broker, message, version, trouble):
        response = usual(broker, message, version, trouble)
        if isinstance(message, MetadataRequest):
            failures.append(rig.metadata.last_failure)
            if len(failures) == 1:
                response.topics[0].partitions[0].partition_index = number
        return response

    monkeypatch.setattr(rig.cluster, "respond", respond)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
    assert f"one has number {number}" in failures[1]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_request_that_cannot_be_encoded_is_not_repeated(make_rig, autojump_clock, idempotent):
    """A timeout beyond int32 fails the batch at once with the reason, not after two minutes of retries."""
    rig = make_rig(request_timeout_ms=2**31, enable_idempotence=idempotent)
    async with rig.running():
        for _ in range(2):
            assert isinstance(await rig.send_and_wait(b"x"), ProtocolError)
        assert rig.clock.now_ms() < 1000
        assert rig.sender.statistics().retries == 0
        assert rig.sender.statistics().records_failed == 2
    assert not rig.cluster.requests(ProduceRequest)


async def test_retries_used_up(make_rig, autojump_clock):
    """``retries=2``: the error itself after the third attempt; the gap in the numbers is closed."""
    rig = make_rig(retries=2)
    async with rig.running():
        await rig.send_and_wait(b"x")
        rig.cluster.produce_script.extend([Trouble(code=ErrorCode.NOT_ENOUGH_REPLICAS)] * 3)
        error = await rig.send_and_wait(b"y")
        assert type(error) is error_class(19)
        assert not isinstance(error, KafkaTimeoutError)
        assert await rig.send_and_wait(b"z") == 1


async def test_waiter_that_raises_hurts_nobody(make_rig, autojump_clock):
    """A callback's exception stays with the hook for it; the sender goes on."""
    rig = make_rig(linger_ms=5)
    async with rig.running():
        future = rig.send(b"x")
        assert isinstance(future, FutureCell)
        future.outcome.add_waiter(lambda: 1 / 0, 0)
        assert await rig.outcome(rig.send(b"y")) == 1
        assert await rig.send_and_wait(b"z") == 2
