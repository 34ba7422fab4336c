"""A transaction is prepared: delivered as by a commit, and then left alone."""

from __future__ import annotations

import pytest
from support.clients.transaction_kit import Talk

from splashdam.model.errors import IllegalStateError, TransactionFailedError
from splashdam.sender.transactions.manager import TransactionState as S
from splashdam.sender.transactions.rulings import RequestKind


def prepared(talk: Talk) -> Talk:
    """With its transaction prepared, and the application told."""
    call = talk.manager.prepare()
    assert talk.calm() == []
    talk.manager.run_ended()
    talk.manager.acknowledge(call)
    assert call.finished.opened
    assert talk.manager.state is S.PREPARED
    return talk


def test_what_is_queued_goes_out_first() -> None:
    """Nothing is prepared while a batch is left; nothing lingers then."""
    talk = Talk().begun()
    call = talk.manager.prepare()
    assert talk.next(batches_left=True) is None
    assert (talk.manager.state, talk.manager.completing, talk.manager.ongoing) == (S.PREPARING, True, True)
    talk.calm()
    assert (talk.manager.state, talk.manager.completing, talk.manager.ongoing) == (S.PREPARED, False, False)
    assert call.prepared is not None
    assert (call.prepared.transactional_id, call.prepared.producer_id) == ("x", 7)
    assert not call.prepared.is_empty


@pytest.mark.parametrize("level", [1, 2])
def test_who_gives_up_aborts_nothing(level: int) -> None:
    """Neither does `close`: the process that decides ends a prepared transaction."""
    talk = prepared(Talk(level=level).begun())
    talk.manager.abort_unattended()
    assert talk.calm() == []
    assert talk.manager.state is S.PREPARED


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("way", ["commit", "abort"])
def test_the_producer_may_end_it_itself(level: int, way: str) -> None:
    """With one request; then the next transaction may begin."""
    talk = prepared(Talk(level=level).begun())
    getattr(talk.manager, way)()
    assert talk.calm() == [RequestKind.END]
    assert talk.manager.state is S.READY


def test_an_empty_one_says_so() -> None:
    """The coordinator does not know it, so nothing has to be ended."""
    talk = Talk().ready()
    talk.manager.begin()
    call = talk.manager.prepare()
    talk.calm()
    assert call.prepared is not None
    assert call.prepared.is_empty


def test_a_failed_record_fails_it() -> None:
    """While it is being prepared; what is left is an abort."""
    talk = Talk().begun()
    call = talk.manager.prepare()
    talk.manager.batch_failed(ValueError("refused"))
    assert talk.manager.state is S.ABORTABLE_ERROR
    talk.manager.run_ended()
    with pytest.raises(TransactionFailedError, match="refused"):
        call.result()


def test_out_of_turn() -> None:
    """Only an open transaction can be prepared, and a prepared one takes no records, offsets or begin."""
    talk = Talk().ready()
    with pytest.raises(IllegalStateError, match=r"prepare_transaction\(\) needs an open transaction"):
        talk.manager.prepare()
    talk.manager.begin()
    prepared(talk)
    for call in (talk.manager.begin, talk.manager.prepare):
        with pytest.raises(IllegalStateError, match="PREPARED"):
            call()
    assert "commit or abort it first" in str(talk.manager.refusal())
