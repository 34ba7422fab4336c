"""Connections through a proxy, made by the ``python-socks`` package (``splashdam[proxy]``).

Imported only where ``proxy_url`` is given. TLS and SASL go through the proxy to the broker.
"""

from __future__ import annotations

import struct

import attrs
import trio

from splashdam.model.errors import CannotConnectError, KafkaConfigurationError, KafkaConnectionError
from splashdam.net.connect import TcpConnect, address_text

try:
    from python_socks import ProxyError
    from python_socks.async_.trio import Proxy
except ImportError as error:
    raise KafkaConfigurationError(
        "proxy_url needs the package python-socks: pip install 'splashdam[proxy]'"
    ) from error


@attrs.frozen(eq=False, repr=False)
class ProxyConnect:
    """Connects through a SOCKS or HTTP proxy.

    Attributes:
        url: ``socks5://``, ``socks4://`` or ``http://[USER:PASSWORD@]HOST:PORT``. An HTTP proxy resolves the
            brokers' names itself, and so does a SOCKS proxy with ``socks5h://`` or ``socks4a://``; otherwise
            this machine does.
        tcp: socket options; its ``timeout_ms`` limits connection and handshake together.

    Raises:
        KafkaConfigurationError: the URL has no host or port.
    """

    url: str
    tcp: TcpConnect

    def __attrs_post_init__(self) -> None:
        try:
            self._proxy()
        except ValueError as error:
            raise KafkaConfigurationError(f"proxy_url: {error}") from None

    def _proxy(self) -> Proxy:
        scheme, separator, rest = self.url[:].partition("://")  # slicing a Secret gives the text itself
        # ``socks5h`` and ``socks4a``: the letter lets the proxy resolve
        # names, and the package does not know it.
        plain = scheme.rstrip("ha") if scheme.startswith("socks") else scheme
        return Proxy.from_url(plain + separator + rest, rdns=scheme != plain or plain == "http")

    async def __call__(self, host: str, port: int) -> trio.SocketStream:
        """Connect.

        Raises:
            KafkaConnectionError: the proxy cannot be reached or refuses, name or port are invalid, or time is
                up.
        """
        where = address_text(host, port)
        with trio.move_on_after(self.tcp.timeout_ms / 1000):
            try:
                # Longer than our own limit, whose error says what was waited for.
                sock = await self._proxy().connect(host, port, timeout=self.tcp.timeout_ms / 1000 + 1)
            except (ProxyError, OSError) as error:  # neither text contains the password
                raise KafkaConnectionError(f"cannot connect to {where} through the proxy: {error}") from error
            except (UnicodeError, OverflowError, struct.error) as error:  # a broker may advertise these, too
                raise CannotConnectError(
                    f"cannot connect to {where} through the proxy: host name or port are invalid: {error}"
                ) from error
            stream = trio.SocketStream(sock)
            self.tcp.set_options(stream)
            return stream
        raise KafkaConnectionError(
            f"cannot connect to {where} through the proxy: no answer within {self.tcp.timeout_ms:g} ms"
        )
