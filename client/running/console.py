"""A producer's console: a page in a thread and loop of its own, so that the sender is not delayed."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import trio

from splashdam.client.running.connecting import TrackedConnect, authenticator, secured
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.waiters import wait_in_thread
from splashdam.console.console import ConsoleSettings, open_console
from splashdam.console.source import Source
from splashdam.embedded_broker.inside import decode_internal
from splashdam.net.clock import SystemClock
from splashdam.net.listen import tcp_listen
from splashdam.sender.wakeup import Latch

T = TypeVar("T")

logger = logging.getLogger("splashdam.client")

END_SECONDS = 1.0
"""How long the end of a producer waits for that of its console: a page that is being made may take longer."""


class ProducerConsole:
    """The console of ``console_port``: the cluster, and all producers of this process.

    Making it starts it; it listens then.

    Args:
        settings: of the producer, with whose permissions the console asks.
        addresses: of the cluster.
        connect: opens connections to it; the console opens its own.

    Attributes:
        link: to print; whoever opens it may also change things.
        ended: opens when it does not listen any more.

    Raises:
        KafkaConfigurationError: a package of ``splashdam[console]`` is missing.
        CannotListenError: the port is taken.
    """

    def __init__(
        self, settings: ProducerSettings, addresses: list[tuple[str, int]], connect: TrackedConnect
    ) -> None:
        self.link = ""
        self._settings = ConsoleSettings(port=settings.console_port or 0, reads_need_token=settings.uses_sasl)
        self._connect = TrackedConnect(connect.connect)
        servers = settings.bootstrap_servers
        self._source = Source(
            title=servers if isinstance(servers, str) else ",".join(servers),
            bootstrap=addresses,
            connect=secured(settings, self._connect),
            run=_run_beside,
            decode=decode_internal,
            authenticator=authenticator(settings),
        )
        self._clock = SystemClock()
        self._listeners: list[trio.abc.Listener[Any]] = []
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._failure: BaseException | None = None
        self._has_begun = Latch()
        self._is_ending = False
        self.ended = Latch()
        name = f"{settings.client_id}-console"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
            wait_in_thread(self._has_begun, None)
            if self._failure is None:
                sys.stderr.write(f"console: {self.link}\n")
        except BaseException:  # Ctrl-C: nobody has an object to close
            self.close()
            raise
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def begin_close(self) -> None:
        """Have it end, without waiting; from any thread, also before it listens."""
        self._is_ending = True  # before the token is read: `_serve` does it the other way round
        token = self._token
        if token is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._scope.cancel)

    def close(self) -> None:
        """As ``begin_close``, and wait for the end for a moment. Blocks the thread."""
        self.begin_close()
        wait_in_thread(self.ended, END_SECONDS)

    def close_in_child(self) -> None:
        """Close the copies of its sockets in a forked child, which would keep the port."""
        self._connect.close_in_child()
        for listener in self._listeners:
            if isinstance(listener, trio.SocketListener) and listener.socket.fileno() >= 0:
                # Not close(): it would take the socket out of the epoll set that both processes share.
                os.close(listener.socket.detach())

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self._clock)
        except BaseException as error:
            if self._has_begun.opened:
                logger.exception("the console has stopped because of a bug")
            self._failure = error
        finally:
            self._has_begun.open()
            self.ended.open()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._is_ending:
            return
        with self._scope:
            async with open_console(
                self._source, self._settings, clock=self._clock, listen=self._listen
            ) as opened:
                self.link = opened.link
                self._has_begun.open()
                await trio.sleep_forever()

    async def _listen(self, host: str, port: int) -> list[trio.abc.Listener[Any]]:
        self._listeners = list(await tcp_listen(host, port))
        return self._listeners


async def _run_beside(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
