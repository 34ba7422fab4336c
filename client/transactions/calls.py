"""How the producers' methods of transactions wait for what the sender does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from splashdam.client.waiters import wait_in_thread, wait_in_trio
from splashdam.model.errors import IllegalStateError

if TYPE_CHECKING:
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.model.transactions import PreparedTransaction
    from splashdam.sender.transactions.calls import PendingCall


class MayHaveTransactions(Protocol):
    """A producer's core, as far as this file needs it."""

    @property
    def transactions(self) -> Transactions | None: ...


def wants_abort(error: BaseException) -> bool:
    """Whether there is time to wait for the abort: not on Ctrl-C, nor in a cancelled task."""
    return isinstance(error, Exception)


def transactions_of(core: MayHaveTransactions) -> Transactions:
    if core.transactions is None:
        raise IllegalStateError("transactions need a producer with the option transactional_id")
    return core.transactions


def prepared_by(call: PendingCall) -> PreparedTransaction:
    assert call.prepared is not None
    return call.prepared


def wait_for_call(transactions: Transactions, call: PendingCall, timeout: float | None = None) -> None:
    wait_in_thread(call.finished, transactions.timeout if timeout is None else timeout)
    transactions.finish(call)


async def wait_for_call_in_trio(
    transactions: Transactions, call: PendingCall, timeout: float | None = None
) -> None:
    with trio.move_on_after(transactions.timeout if timeout is None else timeout):
        await wait_in_trio(call.finished)
        await trio.lowlevel.checkpoint()
    transactions.finish(call)
