"""Clients that live in a trio loop from one call to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

import attrs
import trio

C = TypeVar("C")


@attrs.frozen(eq=False)
class _Kept(Generic[C]):
    client: C
    scope: trio.CancelScope


class ClientPool(Generic[C]):
    """Clients that serve one task at a time: as many as there are tasks, kept for the next.

    Args:
        nursery: where they live.
        open_client: makes one.
    """

    def __init__(
        self, nursery: trio.Nursery, open_client: Callable[[], AbstractAsyncContextManager[C]]
    ) -> None:
        self._nursery = nursery
        self._open_client = open_client
        self._idle: list[_Kept[C]] = []

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[C]:
        """A client for as long as the block lasts. One that was interrupted, or has failed, is not kept."""
        kept: _Kept[C] = self._idle.pop() if self._idle else await self._nursery.start(self._keep)
        try:
            yield kept.client
        except BaseException:
            kept.scope.cancel()
            raise
        self._idle.append(kept)

    async def _keep(self, *, task_status: trio.TaskStatus[_Kept[C]]) -> None:
        with trio.CancelScope() as scope:
            async with self._open_client() as client:
                task_status.started(_Kept(client, scope))
                await trio.sleep_forever()
