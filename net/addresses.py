"""Parse ``bootstrap_servers``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Any

from splashdam.model.errors import WrongSettingError
from splashdam.model.options import nearest_name

DEFAULT_PORT = 9092

_FORM = "HOST:PORT[,HOST:PORT]"
_NOT_IN_A_NAME = re.compile(r"[\x00-,/:-@\[-^`{-\x7f]")
"""Characters that no host name has: those of ASCII but letters, digits, ``-``, ``.`` and ``_``.

Underscores are allowed, because Docker's names have them. Letters of other scripts are allowed, because such
names are looked up in ASCII. A set without those letters compiles in a tenth of the time of its complement.
"""


def parse_bootstrap_servers(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """Return hosts and ports from ``"a:9092,b"``, ``["a:9092", "b"]`` or ``"[::1]:9092"``.

    The port defaults to 9092; duplicates are dropped; order is kept.

    Raises:
        WrongSettingError: there is no address, or an entry is not an address.
    """
    given: object = servers.split(",") if isinstance(servers, str) else servers
    texts: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise _refusal(servers, "must be a str or a list of str; try 'localhost:9092'")
    addresses = [_parse(text.strip(), servers) for text in texts if text.strip()]
    if not addresses:
        raise _refusal(servers, "no address; try 'localhost:9092'")
    return list(dict.fromkeys(addresses))


def _parse(text: str, servers: object) -> tuple[str, int]:
    host, port = _split(text)
    if not host or (":" in host and not _is_ipv6(host)):
        raise _misspelled(servers, text, f"is not of the form {_FORM}")
    strange = None if ":" in host else _NOT_IN_A_NAME.search(host)
    if strange is not None:
        raise _misspelled(
            servers, text, f"has {strange[0]!r}, which no host name has, and is not of the form {_FORM}"
        )
    if port is None:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise _misspelled(servers, text, f"has port {port!r}, which is not a number from 1 to 65535")
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    zone = host.partition("%")[2]
    return _NOT_IN_A_NAME.search(zone) is None


def _split(text: str) -> tuple[str, str | None]:
    """Split host and port; a bare IPv6 address has more than one colon and no port."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", None
        return host, rest[1:] if rest else None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _misspelled(servers: object, text: str, problem: str) -> WrongSettingError:
    return _refusal(servers, f"{text!r} {problem}{_embedded(text)}")


def _refusal(servers: object, problem: str) -> WrongSettingError:
    return WrongSettingError("bootstrap_servers", problem, given=repr(servers))


def _embedded(text: str) -> str:
    """A hint, if ``text`` may be a misspelled ``embedded:DIR``."""
    scheme, colon, directory = text.partition(":")
    is_near = bool(colon and scheme != "embedded" and nearest_name(scheme.lower(), ["embedded"]))
    return f". Did you mean 'embedded:{directory or 'DIR'}'?" if is_near else ""
