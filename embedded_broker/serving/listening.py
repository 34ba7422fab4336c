"""Where a broker listens, and who guards each of these places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.security import Listener
from splashdam.embedded_broker.security.access import AccessControl
from splashdam.net.clock import Clock
from splashdam.net.listen import Listen
from splashdam.storage.files.disk import Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authentication import TokenValidator
    from splashdam.embedded_broker.serving.gate import Gate


PLAINTEXT = "PLAINTEXT"

OpenListener: TypeAlias = "tuple[Listener, trio.abc.Listener[Any]]"
"""One that clients may come to, and how: as ``listeners`` has it, or as host and port that were given."""


def make_gates(
    settings: BrokerSettings,
    files: Files,
    access: AccessControl,
    clock: Clock,
    token_validator: TokenValidator | None,
) -> dict[str, Gate]:
    """By listener, for those that are not PLAINTEXT; nothing is imported for the others.

    Raises:
        KafkaConfigurationError: a certificate or key is missing, or is not what it should be.
    """
    guarded = [each for each in settings.security.endpoints if each.protocol != "PLAINTEXT"]
    if not guarded:
        return {}
    from splashdam.embedded_broker.security.authentication import BrokerAuthority
    from splashdam.embedded_broker.serving.gate import Gate

    keytab = settings.security.sasl_kerberos_keytab
    authority = BrokerAuthority(files, access.users, clock, token_validator, keytab)
    return {each.name: Gate(each, settings.security, authority) for each in guarded}


async def open_listeners(
    settings: BrokerSettings, host: str, port: int, listen: Listen
) -> list[OpenListener]:
    """Opens what ``listeners`` says, or where that says nothing ``host`` and ``port``.

    Raises:
        KafkaConfigurationError: a listener has no protocol.
        KafkaConnectionError: an address is taken or not ours; then none is open.
    """
    endpoints = settings.security.endpoints_on(host, port) or [Listener(PLAINTEXT, host, port)]
    opened: list[OpenListener] = []
    try:
        for endpoint in endpoints:
            opened += [(endpoint, each) for each in await listen(endpoint.host, endpoint.port)]
    except BaseException:
        for _, each in opened:
            await trio.aclose_forcefully(each)
        raise
    return opened
