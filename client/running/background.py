"""A producer's loop in a thread of its own: for programs that block, and for those that run under asyncio."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import trio

from splashdam.client.local import ADDRESS, Lease, local_address
from splashdam.client.running.connecting import make_tcp_connect
from splashdam.client.running.core import ProducerCore
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.record.kernel.outcomes.outcome import FutureT
from splashdam.sender.wakeup import Latch


def background_core(settings: ProducerSettings, future_type: type[FutureT]) -> ProducerCore[FutureT]:
    """Make the core that a ``BackgroundLoop`` runs."""
    local = local_address(settings.bootstrap_servers) is not None
    return ProducerCore(
        settings,
        addresses=[ADDRESS] if local else parse_bootstrap_servers(settings.bootstrap_servers),
        connect=make_tcp_connect(settings),
        clock=SystemClock(),
        own_loop=True,
        future_type=future_type,
    )


class BackgroundLoop:
    """The daemon thread that runs a core. It refers to the core and never to the producer.

    Making it starts it. With ``embedded:DIR`` the directory's broker is started first: that may take long.

    Attributes:
        thread: the thread.
        lease: of the embedded broker; None with a cluster.
        ended: opens when the thread has nothing left to do, after ``lease`` is released.

    Raises:
        IllegalStateError, KafkaConfigurationError: as ``Lease`` and ``ProducerCore.start``.
    """

    def __init__(self, core: ProducerCore[Any]) -> None:
        settings = core.settings
        local = local_address(settings.bootstrap_servers)
        self.lease = lease = None if local is None else Lease(local)
        self.ended = ended = Latch()
        with ExitStack() as undo:
            if lease is not None:
                undo.callback(lease.release)
            core.start()
            undo.callback(core.never_ran)
            if lease is not None:
                core.connect.connect = lease.connect()
            core.open_console()
            self.thread = threading.Thread(
                target=_run,
                args=(core, lease, ended),
                name=f"{settings.client_id}-network-thread",
                # Any other thread is joined before the exit hook that ends this one: the exit would hang.
                daemon=True,
            )
            self.thread.start()
            undo.pop_all()


def _run(core: ProducerCore[Any], lease: Lease | None, ended: Latch) -> None:
    assert isinstance(core.clock, SystemClock)  # one clock for the loop and the threads that send
    try:
        trio.run(core.main, clock=core.clock)
    finally:
        try:
            if lease is not None:
                lease.release()
        finally:
            ended.open()
