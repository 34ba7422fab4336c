"""A TCP connection that sends single requests, without the retries and caches of a client."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from splashdam.client.running.security import make_authenticator, tls_context
from splashdam.client.settings.rules import producer_settings
from splashdam.model.broker_errors import ErrorCode
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.connection.negotiation import highest_common, offered_versions
from splashdam.net.run import run_in_trio
from splashdam.net.sasl.mechanisms import MECHANISMS
from splashdam.testing.contract.behaviour import PATIENCE_SECONDS, BrokenPromise, Run, expect
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Client, Refused
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest
from splashdam.wire.registry import API_KEYS

R = TypeVar("R", bound=Response)

GROUP, TRANSACTION = 0, 1
_ANSWER_SECONDS = 20.0
_PAUSE_SECONDS = 0.02
_SIZE = struct.Struct(">i")
_TRANSIENT = (14, 15, 16, ErrorCode.CONCURRENT_TRANSACTIONS)
"""Transient errors: the coordinator is loading or has moved, or the last transaction is still ending."""


class RawConnection:
    """A connection to one broker.

    Args:
        host: of the broker.
        port: of the broker.
        security: options for TLS and SASL, as `Listener.security`.

    Raises:
        Refused: the broker refuses the login.
        OSError: there is no connection, or no trust in the broker's certificate.
    """

    def __init__(self, host: str, port: int, security: Mapping[str, Any] | None = None) -> None:
        self._host = host
        self._socket = socket.create_connection((host, port), _ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._offered: dict[int, Any] = {}
        self._sent: list[tuple[type[Response], int]] = []
        self._last_id = 0
        if not security:
            return
        settings = producer_settings(security)
        try:
            if settings.uses_tls:
                context = tls_context(settings)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            if settings.uses_sasl:
                self.log_in(security)
        except BaseException:
            self._socket.close()
            raise

    def log_in(self, security: Mapping[str, Any]) -> int:
        """Authenticate with SASL; return the lifetime of the session in ms, 0 for no limit.

        Raises:
            Refused: the broker refuses mechanism or login.
        """
        authenticator = make_authenticator(producer_settings(security))
        mechanism = authenticator.mechanism
        credentials = attrs.evolve(authenticator.credentials, host=self._host)
        side = run_in_trio(MECHANISMS[mechanism].open_client, credentials)
        _refuse_if(self.ask(SaslHandshakeRequest(mechanism=mechanism)).error_code)
        message: bytes | None = side.start()
        lifetime_ms = 0
        while message is not None:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=message))
            _refuse_if(answer.error_code, answer.error_message or "")
            message, lifetime_ms = side.step(bytes(answer.auth_bytes)), answer.session_lifetime_ms
        return lifetime_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def version_of(self, kind: type[Request[Any]]) -> int:
        """Return the newest version that both sides know.

        Raises:
            Refused: the broker does not offer the request.
        """
        if not self._offered:
            self._offered = dict(offered_versions(self.ask(ApiVersionsRequest(), 0)))
        if kind.API_KEY not in self._offered:
            raise Refused(NOT_IN_CLIENT, f"the cluster does not offer {kind.NAME}")
        return highest_common(kind, self._offered, "the broker")

    def frame(self, request: Request[Any], version: int) -> bytes:
        """Encode a request with the next correlation id."""
        self._last_id += 1
        parts = encode_request(
            request, version=version, correlation_id=self._last_id, client_id="splashdam-contract"
        )
        return b"".join(bytes(part) for part in parts)

    def send(self, request: Request[Any], version: int | None = None) -> None:
        """Send a request; `answer` reads the response."""
        chosen = self.version_of(type(request)) if version is None else version
        self._sent.append((API_KEYS[request.API_KEY].response, chosen))
        self.send_bytes(self.frame(request, chosen))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def answer(self) -> Any:
        """Read the response to the oldest request that `send` has sent.

        Raises:
            BrokenPromise: the broker closed the connection, or was silent for too long.
        """
        kind, version = self._sent.pop(0)
        found = self.next_frame()
        if found is None:
            raise BrokenPromise(f"instead of a {kind.NAME} the broker closed the connection")
        return decode_response(found, kind, version)[1]

    def ask(self, request: Request[R], version: int | None = None) -> R:
        """Send a request and read its response; ``version`` defaults to the newest that both sides know."""
        self.send(request, version)
        answer: R = self.answer()
        return answer

    def next_frame(self) -> bytes | None:
        """Read the next frame; None if the broker closes the connection."""
        try:
            head = self._read(_SIZE.size)
            return None if head is None else self._read(_SIZE.unpack(head)[0])
        except ConnectionError:
            return None
        except TimeoutError as error:
            raise BrokenPromise(f"no answer within {_ANSWER_SECONDS:g} s") from error

    def _read(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                return None
            data += more
        return bytes(data)

    def expect_closed(self, after: str) -> None:
        """Check that the broker closes the connection without an answer."""
        expect(self.next_frame(), None, f"after {after}")


@contextmanager
def connected(run: Run) -> Iterator[RawConnection]:
    """Connect to the first bootstrap server."""
    address, security = run.listeners[0]
    with RawConnection(*parse_bootstrap_servers(address)[0], security) as connection:
        yield connection


@contextmanager
def leader_of(run: Run, topic: str, partition: int = 0) -> Iterator[RawConnection]:
    """Connect to the leader of a partition."""
    with connected(run) as connection:
        answer = connection.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        )
    leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
    (node,) = (each for each in answer.brokers if each.node_id == leaders.get(partition))
    with RawConnection(node.host, node.port, run.listeners[0].security) as connection:
        yield connection


@contextmanager
def coordinator_of(run: Run, key: str, key_type: int = GROUP) -> Iterator[RawConnection]:
    """Connect to the coordinator of a group or of a transactional id."""
    with connected(run) as connection:
        found = retried(
            lambda: connection.ask(FindCoordinatorRequest(key=key, key_type=key_type), 2),
            lambda answer: answer.error_code,
        )
    if key_type == GROUP:
        run.helper.committed(key, "")  # returns once the coordinator has loaded its groups
    with RawConnection(found.host, found.port, run.listeners[0].security) as connection:
        yield connection


def _refuse_if(code: int, text: str = "") -> None:
    if code:
        raise Refused(ErrorCode(code).name, text)


def retried(ask: Callable[[], R], code_of: Callable[[R], int]) -> R:
    """Repeat ``ask`` while the answer has a transient error, for at most `PATIENCE_SECONDS`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = ask()
        if code_of(answer) not in _TRANSIENT or time.monotonic() > until:
            return answer
        time.sleep(_PAUSE_SECONDS)


class ProtocolClient(Client):
    """Stands in the table for behaviours that use a `RawConnection`; it has no other operation.

    Args:
        bootstrap_servers: ignored, as is ``security``: behaviours take both from their `Run`.
        security: likewise.
    """

    name = "protocol"
    version = version("splashdam")
    ops = frozenset({PROTOCOL})

    def __init__(self, bootstrap_servers: str, security: Mapping[str, Any] | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
