"""What an application does with a transactional producer: transactions until each has its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import attrs
import trio

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.model.errors import KafkaError
from splashdam.testing.simulator.told import SentRecord

End = Literal["committed", "aborted", "left open"]

_PAUSE_S = 0.1


@attrs.define(eq=False)
class Transaction:
    """The records of one transaction and what became of it, as far as the application knows."""

    records: list[SentRecord]
    end: End


async def initialized(producer: AsyncKafkaProducer) -> bool:
    """Calls ``init_transactions`` until it succeeds; False where that cannot be."""
    return await _done(producer.init_transactions) is None


async def ended(producer: AsyncKafkaProducer, *, commit: bool) -> End:
    """Commits, or aborts; a commit that cannot be is turned into an abort, as the documentation has it."""
    if commit:
        error = await _done(producer.commit_transaction)
        if error is None:
            return "committed"
        if error.fatal:
            return "left open"
    error = await _done(producer.abort_transaction)
    return "aborted" if error is None else "left open"


async def _done(call: Callable[[], Awaitable[None]]) -> KafkaError | None:
    """Repeats what may be repeated; returns why it cannot be done."""
    while True:
        try:
            await call()
        except KafkaError as error:
            if not error.retriable:
                return error
            await trio.sleep(_PAUSE_S)
        else:
            return None
