"""A thread that runs trio for blocking callers, and a pool of clients that live in it between calls."""

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
    """One daemon thread with a trio loop, which any thread of the same process may call.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._name = name
        started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]] = queue.SimpleQueue()
        self._has_ended = False  # not `is_alive`: after Ctrl-C in a join it answers no for ever
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        self._token, self.nursery = started.get()

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended, or belongs to another process."""
        return self._pid != os.getpid() or self._has_ended

    def _run(self, started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]]) -> None:
        try:
            trio.run(_main, started)
        finally:
            self._has_ended = True

    def call(self, task: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a task in the loop, wait for it, and return or raise its outcome.

        Raises:
            IllegalStateError: the thread has ended, or belongs to the process that this one was forked from.
        """
        done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        async def run() -> None:
            try:
                result = await task(*args)
            except Exception as error:  # belongs to the caller; the loop goes on
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
        """Start a task that raises nothing but ``trio.Cancelled``.

        Args:
            task: what to run.
            on_refusal: called in the loop if its nursery is closed already.

        Raises:
            IllegalStateError: as `call`.
        """

        def start() -> None:
            try:
                self.nursery.start_soon(task)
            except RuntimeError:  # the nursery is closed: the thread is ending
                on_refusal()

        self.soon(start)

    def soon(self, call: Callable[[], object]) -> None:
        """Call a function in the loop; it must not raise.

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
        """Cancel all tasks and end the loop; wait up to ``timeout`` seconds for that. Idempotent."""
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
    """Clients that each serve one task at a time; idle ones are kept for later tasks.

    Args:
        nursery: where the clients' tasks run.
        open_client: opens a client.
    """

    def __init__(
        self, nursery: trio.Nursery, open_client: Callable[[], AbstractAsyncContextManager[C]]
    ) -> None:
        self._nursery = nursery
        self._open_client = open_client
        self._idle: list[_Kept[C]] = []

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[C]:
        """Lend a client for the block. It is closed if the block is cancelled or fails."""
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
