"""``listeners`` and what belongs to them, read."""

from __future__ import annotations

import re

import attrs

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENER = re.compile(
    r"(?P<name>\w+)://(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>\d{1,5})"
)
_WILDCARDS = ("", "0.0.0.0", "::")


@attrs.frozen
class Listener:
    """A place where the broker listens.

    Attributes:
        name: Kafka's name of the listener.
        host: address to listen on; empty: on all.
        port: likewise; 0: a free one.
        protocol: one of ``PROTOCOLS``.
        advertised: what clients are told; None: ``host``, or where they came in if that is any address.
    """

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    advertised: tuple[str, int] | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are inside TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether its clients have to say who they are."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def told(self, port: int) -> tuple[str, int] | None:
        """The broker's address for clients of this listener, open on ``port``; None: where they came in."""
        if self.advertised is not None:
            return self.advertised[0], self.advertised[1] or port
        return None if self.host in _WILDCARDS else (self.host, port)


def parse_listeners(text: str) -> list[Listener]:
    """``NAME://HOST:PORT,…``

    Raises:
        ValueError: it is not that, or a name stands there twice.
    """
    found: list[Listener] = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _LISTENER.fullmatch(part)
        if match is None or int(match["port"]) > 65_535:
            raise ValueError(f"{part!r} is not NAME://HOST:PORT")
        name = match["name"].upper()
        if any(each.name == name for each in found):
            raise ValueError(f"the listener {name} is there twice")
        protocol = name if name in PROTOCOLS else "PLAINTEXT"
        found.append(Listener(name, match["six"] or match["host"] or "", int(match["port"]), protocol))
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """``NAME:PROTOCOL,…``

    Raises:
        ValueError: it is not that, or a protocol is none.
    """
    protocols: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, protocol = part.partition(":")
        if protocol.strip().upper() not in PROTOCOLS or not name.strip():
            raise ValueError(f"{part!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols
