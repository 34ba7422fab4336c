"""The console of a broker, in the broker's loop: a client that also sees what only this process knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs

from splashdam.console.console import ConsoleSettings, OpenConsole, open_console
from splashdam.console.source import Source
from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.execution.answers import ANYBODY
from splashdam.embedded_broker.inside import BrokerInside, decode_internal
from splashdam.embedded_broker.serving.socket_server import IN_PROCESS_ADDRESS, PLAINTEXT
from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.clock import Clock
from splashdam.net.listen import Listen, tcp_listen
from splashdam.storage.background import Now
from splashdam.storage.manager.log_looks import LogLooks


@asynccontextmanager
async def open_broker_console(
    broker: Broker,
    settings: ConsoleSettings,
    *,
    principal: str | None = None,
    listen: Listen = tcp_listen,
    token: str | None = None,
) -> AsyncIterator[OpenConsole]:
    """Serve a console for the block.

    Args:
        broker: what it shows.
        settings: how it behaves.
        principal: with whose permissions it asks, as ``User:name``; a broker with an authorizer needs one.
        listen: how to listen; TCP by default.
        token: of the link; by default a new one.

    Raises:
        KafkaConfigurationError: a package is missing, or the principal.
        CannotListenError: the address is taken, or not one of this machine.
    """
    if broker.authorizer is not None and principal is None:
        raise KafkaConfigurationError(
            "this broker has an authorizer, and a console would show what its ACLs forbid; name the principal"
            " whose permissions it has (--console-principal User:NAME, console_principal=…)"
        )
    requester = ANYBODY if principal is None else ANYBODY._replace(principal=principal)
    # The looks at logs go past the ACLs.
    logs = None if broker.authorizer is not None else LogLooks(broker.logs, partial(_now, broker.clock))
    inside = BrokerInside(broker.server, broker.groups, broker.clock, requester, logs)
    address = next(iter(broker.addresses), IN_PROCESS_ADDRESS)
    source = Source(
        title=broker.bootstrap_servers if broker.listeners else "this process",
        bootstrap=[address],
        connect=inside.connect,
        run=broker.logs.files.run,
        decode=decode_internal,
        inside=inside,
    )
    # Others would see through this console what a listener asks them to authenticate for.
    is_secured = any(each.protocol != PLAINTEXT for each in broker.settings.security.endpoints)
    settings = attrs.evolve(
        settings, reads_need_token=settings.reads_need_token or is_secured or principal is not None
    )
    broker.interception.watch = inside
    try:
        async with open_console(source, settings, clock=broker.clock, listen=listen, token=token) as console:
            yield console
    finally:
        broker.interception.watch = None


def _now(clock: Clock) -> Now:
    return Now(clock.now_ms(), clock.wall_ms())
