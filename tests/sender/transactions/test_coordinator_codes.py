"""Every answer of a coordinator by its error code: the table, and what follows from each ruling."""

from __future__ import annotations

import pytest
from support.clients.transaction_kit import Talk, new_batch

from splashdam.model.broker_errors import ErrorCode, ProducerFencedError, error_class
from splashdam.model.errors import KafkaError, TransactionFailedError
from splashdam.model.transactions import ConsumerGroupMetadata
from splashdam.sender.transactions.manager import TransactionState
from splashdam.sender.transactions.rulings import RequestKind, Ruling, gravest, ruling_on
from splashdam.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from splashdam.wire.messages.init_producer_id import InitProducerIdResponse

INTO = [RequestKind.ADD_PARTITIONS, RequestKind.ADD_OFFSETS, RequestKind.COMMIT_OFFSETS, RequestKind.END]
KNOWN_CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]

# Columns: FindCoordinator, InitProducerId, AddPartitions, AddOffsets, TxnOffsetCommit, EndTxn.
# r retry, f find the coordinator again, d denied, a abort, n abort for a new epoch, x fenced, D dead
FACTS = {
    15: "rfffff",
    16: "rfffff",
    7: "rrrrfr",
    14: "rrrrrr",
    51: "rrrrrr",
    47: "Dxxxxx",
    90: "Dxxxxx",
    31: "DdaDDD",
    53: "DdDDDD",
    48: "DDDDDD",
    49: "DDnnDn",
    59: "DDnnDn",
    29: "DDaaaa",
    30: "aDaaaa",
    55: "DDaaaa",
    22: "DDaaaa",
    25: "DDaaaa",
    82: "DDaaaa",
    120: "aaaaaa",
    35: "DDaDDD",
    42: "DDaDDD",
    -1: "DDaDDD",
    999: "DDaDDD",
}
LETTERS = {
    "r": Ruling.RETRY,
    "f": Ruling.FIND_AGAIN,
    "d": Ruling.DENY,
    "a": Ruling.ABORT,
    "n": Ruling.RENEW,
    "x": Ruling.FENCE,
    "D": Ruling.DIE,
}


@pytest.mark.parametrize("code", FACTS)
def test_the_table(code: int) -> None:
    """Row by row."""
    assert [ruling_on(asked, code) for asked in RequestKind] == [LETTERS[letter] for letter in FACTS[code]]


@pytest.mark.parametrize("code", [code for code in KNOWN_CODES if int(code) not in FACTS])
def test_other_codes(code: int) -> None:
    """Retried where Kafka calls them retriable; else AddPartitions alone is survived."""
    rulings = [ruling_on(asked, code) for asked in RequestKind]
    if error_class(code).retriable:
        assert set(rulings) == {Ruling.RETRY}
    else:
        assert rulings == [LETTERS[letter] for letter in "DDaDDD"]


def test_one_code_decides_for_many_partitions() -> None:
    """The gravest; 29 before other reasons to abort, and 55 only where there is no other."""
    ask = RequestKind.ADD_PARTITIONS
    assert gravest(ask, []) == 0
    assert gravest(ask, [0, 0]) == 0
    assert gravest(ask, [55, 0, 29, 22]) == 29
    assert gravest(ask, [55, 55]) == 55
    assert gravest(ask, [55, 3]) == 3
    assert gravest(ask, [29, 53, 16]) == 53
    assert gravest(ask, [51, 16]) == 16


@pytest.mark.parametrize("asked", RequestKind)
@pytest.mark.parametrize("code", [14, 51])
def test_retried(asked: RequestKind, code: int) -> None:
    """After a backoff, the same question; the state stays."""
    talk = Talk()
    question = talk.asks_for(asked)
    state = talk.manager.state
    talk.reply(question, code)
    assert talk.manager.state is state
    assert talk.next() is None
    talk.now_ms += 100
    again = talk.next()
    assert again is not None
    assert again.kind is asked
    assert not talk.manager.ended


def test_the_first_addition_waits_20_ms() -> None:
    """51: markers of the last transaction are being written. Later ones wait as long as all others do."""
    talk = Talk()
    talk.reply(talk.asks_for(RequestKind.ADD_PARTITIONS), 51)
    assert talk.manager.due_in_ms(talk.now_ms) == 20
    talk.now_ms += 20
    talk.reply(talk.until(RequestKind.ADD_PARTITIONS))
    talk.manager.partitions.wanted.add(new_batch().topic_partition._replace(partition=1))
    talk.reply(talk.until(RequestKind.ADD_PARTITIONS), 51)
    assert talk.manager.due_in_ms(talk.now_ms) == 100


@pytest.mark.parametrize(
    "asked", [asked for asked in RequestKind if asked is not RequestKind.FIND_COORDINATOR]
)
def test_the_coordinator_is_found_again(asked: RequestKind) -> None:
    """The new coordinator gets the same request."""
    talk = Talk()
    talk.reply(talk.asks_for(asked), 16)
    talk.now_ms += 100
    question = talk.next()
    assert question is not None
    assert question.kind is RequestKind.FIND_COORDINATOR
    talk.reply(question)
    assert talk.until(asked)


@pytest.mark.parametrize("asked", [RequestKind.INIT_PRODUCER_ID, *INTO])
@pytest.mark.parametrize("code", [47, 90])
def test_fenced(asked: RequestKind, code: int) -> None:
    """By either code, for good: every call raises ProducerFencedError."""
    talk = Talk()
    talk.reply(talk.asks_for(asked), code)
    manager = talk.manager
    assert manager.state is TransactionState.FATAL_ERROR
    for call in (manager.init, manager.begin, manager.commit, manager.abort):
        with pytest.raises(ProducerFencedError, match="transactional_id 'x'"):
            call()
    assert isinstance(manager.refusal(), ProducerFencedError)
    assert talk.next() is None
    assert all(isinstance(call.error, ProducerFencedError) for call in manager.ended)


@pytest.mark.parametrize("asked", [RequestKind.INIT_PRODUCER_ID, *INTO])
def test_a_fenced_producer_was_told_to_abort_which_raises(asked: RequestKind) -> None:
    """The remedy of code 47 in an answer to Produce hid that of ProducerFencedError."""
    talk = Talk()
    talk.reply(talk.asks_for(asked), 47)
    text = str(talk.manager.refusal())
    assert "abort" not in text
    assert text.endswith(f"What to do: {ProducerFencedError.remedy}.")


@pytest.mark.parametrize("code", [31, 53])
def test_denied(code: int) -> None:
    """The call fails; once the rights are there, it is made again."""
    talk = Talk()
    talk.reply(talk.asks_for(RequestKind.INIT_PRODUCER_ID), code)
    (call,) = talk.manager.ended
    assert type(call.error) is error_class(code)
    talk.manager.acknowledge(call)
    assert talk.manager.state is TransactionState.UNINITIALIZED
    talk.ready().manager.begin()


@pytest.mark.parametrize("asked", [RequestKind.FIND_COORDINATOR, *INTO])
@pytest.mark.parametrize("code", [48, 53, 42])
def test_dead(asked: RequestKind, code: int) -> None:
    """Calls raise what ended it: itself, or as the cause of a FatalTransactionError."""
    if ruling_on(asked, code) is not Ruling.DIE:
        return
    talk = Talk()
    talk.reply(talk.asks_for(asked), code)
    assert talk.manager.state is TransactionState.FATAL_ERROR
    with pytest.raises(KafkaError) as caught:
        talk.manager.begin()
    assert caught.value.fatal
    assert error_class(code) in (type(caught.value), type(caught.value.__cause__))


@pytest.mark.parametrize("asked", INTO)
@pytest.mark.parametrize("code", [29, 30, 55, 22, 25, 82, 120])
def test_abortable(asked: RequestKind, code: int) -> None:
    """The waiting call fails with a TransactionFailedError; an abort makes the producer ready again."""
    talk = Talk()
    talk.reply(talk.asks_for(asked), code)
    manager = talk.manager
    assert manager.state is TransactionState.ABORTABLE_ERROR
    for call in manager.ended:
        assert isinstance(call.error, TransactionFailedError)
        assert type(call.error.__cause__) is error_class(code)
        manager.acknowledge(call)
    with pytest.raises(TransactionFailedError):
        manager.send_offsets({}, ConsumerGroupMetadata("g"))
    call = manager.abort()
    talk.calm()
    assert call.decided
    assert call.error is None
    assert manager.state is TransactionState.READY


@pytest.mark.parametrize("asked", [RequestKind.ADD_PARTITIONS, RequestKind.ADD_OFFSETS, RequestKind.END])
@pytest.mark.parametrize("code", [49, 59])
def test_a_new_epoch_is_needed(asked: RequestKind, code: int) -> None:
    """After 49 the coordinator takes no EndTxn of this identity: the abort asks for a new one at once."""
    talk = Talk()
    talk.reply(talk.asks_for(asked), code)
    assert talk.manager.state is TransactionState.ABORTABLE_ERROR
    talk.manager.abort()
    asks = talk.calm()
    ends = asked is not RequestKind.ADD_PARTITIONS and code == 59
    assert asks == ([RequestKind.END] if ends else []) + [RequestKind.INIT_PRODUCER_ID]
    assert talk.manager.state is TransactionState.READY


@pytest.mark.parametrize("asked", [RequestKind.ADD_PARTITIONS, RequestKind.ADD_OFFSETS, RequestKind.END])
@pytest.mark.parametrize("code", [49, 59])
def test_an_old_broker_gives_no_new_epoch(asked: RequestKind, code: int) -> None:
    """Before Kafka 2.5 that was the end."""
    talk = Talk(version=2)
    talk.reply(talk.asks_for(asked), code)
    assert talk.manager.state is TransactionState.FATAL_ERROR


@pytest.mark.parametrize("code", [120, 49, 59])
def test_aborts_are_not_left_because_of_abortable_errors(code: int) -> None:
    """EndTxn is repeated, or a new epoch asked for."""
    talk = Talk().begun()
    call = talk.manager.abort()
    talk.reply(talk.until(RequestKind.END), code)
    assert talk.manager.state is TransactionState.ABORTING
    assert not call.decided
    talk.now_ms += 100
    assert talk.calm() == ([RequestKind.END] if code == 120 else [RequestKind.INIT_PRODUCER_ID])
    assert talk.manager.state is TransactionState.READY
    assert call.error is None


def test_abortable_before_there_is_an_identity() -> None:
    """120 for InitProducerId: the abort asks once more."""
    talk = Talk()
    talk.reply(talk.asks_for(RequestKind.INIT_PRODUCER_ID), 120)
    (call,) = talk.manager.ended
    assert isinstance(call.error, TransactionFailedError)
    assert talk.manager.state is TransactionState.ABORTABLE_ERROR
    talk.manager.abort()
    assert talk.calm() == [RequestKind.INIT_PRODUCER_ID]
    assert talk.manager.state is TransactionState.READY


@pytest.mark.parametrize("code", [0, 29, 49, 16])
def test_an_answer_after_a_fatal_one(code: int) -> None:
    """A Produce answer has ended the producer while the coordinator was asked: its answer is late."""
    talk = Talk()
    question = talk.asks_for(RequestKind.ADD_PARTITIONS)
    talk.manager.die(ProducerFencedError("fenced"))
    talk.reply(question, code)
    assert talk.manager.state is TransactionState.FATAL_ERROR
    assert isinstance(talk.manager.cause, ProducerFencedError)
    assert talk.next() is None


def test_a_request_that_breaks_after_a_fatal_answer() -> None:
    """As above, without an answer."""
    talk = Talk().begun()
    talk.manager.commit()
    question = talk.until(RequestKind.END)
    talk.manager.die(ProducerFencedError("fenced"))
    talk.manager.impossible(question, KafkaError("too late"), talk.now_ms)
    talk.manager.unanswered(question, KafkaError("too late"), talk.now_ms)
    assert isinstance(talk.manager.cause, ProducerFencedError)


@pytest.mark.parametrize("code", [30, 120])
def test_a_coordinator_that_is_not_named_during_an_abort(code: int) -> None:
    """There is no other way out, so it is asked again: after a backoff, not in a loop."""
    talk = Talk().begun()
    call = talk.manager.abort()
    talk.manager.coordinator_lost(1)
    talk.reply(talk.until(RequestKind.FIND_COORDINATOR), code)
    assert talk.manager.state is TransactionState.ABORTING
    assert talk.manager.due_in_ms(talk.now_ms) == 100
    talk.now_ms += 100
    talk.calm()
    assert call.decided
    assert call.error is None


@pytest.mark.parametrize("code", [30, 120])
def test_ready_only_with_an_identity(code: int) -> None:
    """The coordinator is not named when the first identity is asked for; after the abort there is one."""
    talk = Talk()
    talk.reply(talk.asks_for(RequestKind.FIND_COORDINATOR), code)
    (call,) = talk.manager.ended
    talk.manager.acknowledge(call)
    talk.manager.abort()
    assert talk.calm() == [RequestKind.FIND_COORDINATOR, RequestKind.INIT_PRODUCER_ID]
    assert talk.manager.state is TransactionState.READY
    assert talk.manager.sequences.identity.producer_id == 7


def test_an_abort_that_failed_is_begun_anew_where_nobody_waits() -> None:
    """The call had timed out before it failed, so no caller saw the error.

    `close` once waited in vain for its end.
    """
    talk = Talk().begun()
    talk.manager.batch_failed(KafkaError("lost"))
    talk.manager.abort()
    talk.reply(talk.until(RequestKind.END), 59)
    talk.reply(talk.until(RequestKind.INIT_PRODUCER_ID), 120)
    assert talk.manager.state is TransactionState.ABORTABLE_ERROR
    talk.manager.abort_unattended()
    talk.calm()
    assert talk.manager.state is TransactionState.READY


@pytest.mark.parametrize(("node_id", "host"), [(-1, "h"), (-1, ""), (0, "")])
def test_a_coordinator_that_is_no_broker(node_id: int, host: str) -> None:
    """Negative ids are ours, for the addresses to begin with: their connections stay as they are."""
    talk = Talk()
    question = talk.asks_for(RequestKind.FIND_COORDINATOR)
    nobody = Coordinator(key="x", node_id=node_id, host=host, port=1)
    talk.manager.answered(question, FindCoordinatorResponse(coordinators=[nobody]), talk.now_ms)
    assert talk.manager.due_in_ms(talk.now_ms) == 100
    talk.now_ms += 100
    assert talk.until(RequestKind.INIT_PRODUCER_ID)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (7, -1), (-(2**63), 0)])
def test_an_identity_that_is_none(producer_id: int, epoch: int) -> None:
    """With a negative id brokers check no numbers: nothing is sent under it."""
    talk = Talk()
    question = talk.asks_for(RequestKind.INIT_PRODUCER_ID)
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    talk.manager.answered(question, response, talk.now_ms)
    assert talk.manager.state is TransactionState.FATAL_ERROR
