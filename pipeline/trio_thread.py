"""A thread that runs trio for callers that block, and clients that live in it from one call to the next."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

import attrs
import trio

from splashdam.model.errors import IllegalStateError

T = TypeVar("T")


class TrioThread:
    """One daemon thread with a trio loop. Any thread of the process that made it may call.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._name = name
        started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]] = queue.SimpleQueue()
        self._has_ended = False  # and not `is_alive`, which says no for ever once Ctrl-C has interrupted it
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        self._token, self.nursery = started.get()

    @property
    def is_closed(self) -> bool:
        """Whether it has ended, or lives in another process."""
        return self._pid != os.getpid() or self._has_ended

    def _run(self, started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]]) -> None:
        try:
            trio.run(_main, started)
        finally:
            self._has_ended = True

    def call(self, task: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Runs a task in the loop and waits for what it returns, or raises what it raises.

        Raises:
            IllegalStateError: the thread has ended, or belongs to the process that this one was forked from.
        """
        done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        async def run() -> None:
            try:
                result = await task(*args)
            except Exception as error:  # the caller's, not the loop's
                done.put((None, error))
            except BaseException:
                done.put((None, self._ended()))
                raise
            else:
                done.put((result, None))

        self.start_soon(run, lambda: done.put((None, self._ended())))
        value, error = done.get()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # a task without an error has returned a T

    def start_soon(self, task: Callable[[], Awaitable[None]], on_refusal: Callable[[], None]) -> None:
        """Starts a task that raises nothing but cancellation.

        Args:
            task: what to run.
            on_refusal: called in the loop where it takes no more tasks.

        Raises:
            IllegalStateError: as `call`.
        """

        def start() -> None:
            try:
                self.nursery.start_soon(task)
            except RuntimeError:  # it is ending
                on_refusal()

        self.soon(start)

    def soon(self, call: Callable[[], object]) -> None:
        """Calls something in the loop, which must not raise.

        Raises:
            IllegalStateError: as `call`.
        """
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"{self._name} belongs to process {self._pid}, this is process {os.getpid()}: ask for a"
                " reader in the worker, after the fork"
            )
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            raise self._ended() from None

    def close(self, timeout: float = 1.0) -> None:
        """Ends the loop and all that runs in it; waits so many seconds for that. May be called again."""
        if self._pid == os.getpid():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self.nursery.cancel_scope.cancel)
            self._thread.join(timeout)

    def _ended(self) -> IllegalStateError:
        return IllegalStateError(f"{self._name} is closed")


async def _main(started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]]) -> None:
    async with trio.open_nursery() as nursery:
        started.put((trio.lowlevel.current_trio_token(), nursery))
        await trio.sleep_forever()


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
