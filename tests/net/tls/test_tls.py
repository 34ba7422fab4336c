"""TLS over memory streams: what is wrong is named, with a remedy; what is right goes through."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
from support.security.security_kit import Pki

from splashdam.model.errors import (
    AuthenticationError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    SslAuthenticationError,
    WrongListenerError,
)
from splashdam.model.secrets import Secret
from splashdam.net.connection.connection import authentication_cause
from splashdam.net.connection.streams import send_parts
from splashdam.net.memory import MemoryStream, memory_stream_pair
from splashdam.net.tls.context import TlsFiles, client_context, server_context
from splashdam.net.tls.tls import TlsConnect, TlsStream, accept_tls

NAMES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates for all of these tests."""
    return Pki(tmp_path_factory.mktemp("pki"))


def client(check_hostname: bool = True, **files: Any) -> ssl.SSLContext:
    return client_context(TlsFiles(names=NAMES, **files), check_hostname=check_hostname)


def server(client_auth: str = "none", **files: Any) -> ssl.SSLContext:
    return server_context(TlsFiles(names=NAMES, **files), client_auth=client_auth)


class Meeting:
    """A client and a server, and what each of them says about the other."""

    def __init__(self, client_tls: ssl.SSLContext, server_tls: ssl.SSLContext | None) -> None:
        self._client_tls = client_tls
        self._server_tls = server_tls
        self.client_error: KafkaError | None = None
        self.server_error: KafkaError | None = None
        self.client: TlsStream | None = None
        self.server: TlsStream | None = None

    async def take_place(self, host: str = "localhost") -> None:
        """Both shake hands, or fail to."""
        async with trio.open_nursery() as nursery:

            async def connect(host: str, port: int) -> MemoryStream:
                ours, theirs = memory_stream_pair()
                nursery.start_soon(self._accept, theirs)
                return ours

            try:
                self.client = await TlsConnect(connect, self._client_tls)(host, 9093)
            except KafkaError as error:
                self.client_error = error

    async def _accept(self, stream: MemoryStream) -> None:
        if self._server_tls is None:
            await stream.receive_some()
            await stream.send_all(b"\0\0\0\x04what is this?")
            await stream.aclose()
            return
        try:
            self.server = await accept_tls(stream, self._server_tls, "a client")
        except KafkaError as error:
            self.server_error = error


async def test_what_is_sent_arrives(pki: Pki) -> None:
    """Parts of any size, in order, and the server knows whom the client's certificate names."""
    meeting = Meeting(
        client(cafile=pki.cafile, certfile=pki.client),
        server("required", cafile=pki.cafile, certfile=pki.broker),
    )
    await meeting.take_place()
    assert meeting.client is not None
    assert meeting.server is not None
    assert meeting.server.peer_subject is not None
    assert "CN=anna" in meeting.server.peer_subject
    parts = [b"a" * size for size in (1, 10, 200_000, 0, 70_000, 3)]
    whole = b"".join(parts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_parts, meeting.client, parts)
        received = b""
        while len(received) < len(whole):
            received += await meeting.server.receive_some(50_000)
    assert received == whole
    await meeting.client.aclose()
    assert await meeting.server.receive_some() == b""


async def test_small_parts_go_together(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, records, header, records: one write; what is large enough goes by itself."""
    meeting = Meeting(client(cafile=pki.cafile), server(certfile=pki.broker))
    await meeting.take_place()
    sizes: list[int] = []

    async def send_all(_self: TlsStream, data: Any) -> None:
        await trio.lowlevel.checkpoint()
        sizes.append(len(data))

    monkeypatch.setattr(TlsStream, "send_all", send_all)
    assert meeting.client is not None
    await send_parts(meeting.client, [b"x" * 50, b"x" * 60_000, b"x" * 50, b"x" * 500_000, b"x"])
    assert sizes == [60_100, 500_000, 1]


async def refused(meeting: Meeting, words: str, host: str = "localhost") -> SslAuthenticationError:
    await meeting.take_place(host)
    assert isinstance(meeting.client_error, SslAuthenticationError)
    assert f"no TLS with {host}:9093: " in str(meeting.client_error)
    assert words in str(meeting.client_error)
    return meeting.client_error


async def test_an_unknown_ca(pki: Pki) -> None:
    """The remedy names the option; and the broker hears of it by an alert."""
    meeting = Meeting(client(cafile=pki.other_cafile), server(certfile=pki.broker))
    await refused(meeting, "signed by a CA that is not trusted; name that CA in ssl_cafile")
    assert isinstance(meeting.server_error, SslAuthenticationError)
    assert "rejects this side's certificate" in str(meeting.server_error)


async def test_a_self_signed_certificate(pki: Pki, tmp_path: Path) -> None:
    """One that is its own CA."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    ca_key = load_pem_private_key(pki.ca.private_key_pem.bytes(), None)
    own = tmp_path / "self.pem"
    key = ca_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    own.write_bytes(key + pki.ca.cert_pem.bytes())
    meeting = Meeting(client(cafile=pki.other_cafile), server(certfile=str(own)))
    await refused(meeting, "self-signed")


async def test_an_expired_certificate(pki: Pki) -> None:
    """Or a clock that is wrong."""
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired = pki.issue("expired", "localhost", not_after=yesterday)
    meeting = Meeting(client(cafile=pki.cafile), server(certfile=expired))
    await refused(meeting, "its certificate has expired; renew it, or check this machine's clock")


@pytest.mark.parametrize("host", ["elsewhere", "127.0.0.2"])
async def test_a_name_that_is_not_in_the_certificate(pki: Pki, host: str) -> None:
    """For names and addresses; without the check it is accepted."""
    meeting = Meeting(client(cafile=pki.cafile), server(certfile=pki.broker))
    await refused(meeting, "a name", host)
    meeting = Meeting(client(False, cafile=pki.cafile), server(certfile=pki.broker))
    await meeting.take_place(host)
    assert meeting.client_error is None


async def test_an_address_in_the_certificate(pki: Pki) -> None:
    """Certificates may be for addresses, too."""
    meeting = Meeting(client(cafile=pki.cafile), server(certfile=pki.broker))
    await meeting.take_place("127.0.0.1")
    assert meeting.client_error is None


async def test_a_plaintext_broker(pki: Pki, autojump_clock: Any) -> None:
    """It answers something that is not TLS."""
    meeting = Meeting(client(cafile=pki.cafile), None)
    await meeting.take_place("localhost")
    assert isinstance(meeting.client_error, WrongListenerError)
    assert "does not speak TLS; check the port" in str(meeting.client_error)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n", b"HTTP/1.1 400 Bad Request\r\n"], WrongListenerError),
        ([b"HTTP/1.1 503 Service Unavailable\r\n"] * 2, KafkaConnectionError),
        ([b"HTTP/1.1 400 Bad Request\r\n", b"\x16\x03\x03\x00\x7a"], KafkaConnectionError),
        ([b"HTTP/1.1 400 Bad Request\r\n", b""], KafkaConnectionError),
    ],
)
async def test_text_once_instead_of_tls_was_final(
    pki: Pki, autojump_clock: Any, answers: list[bytes], kind: type[KafkaError]
) -> None:
    """A balancer may have said it while its broker restarts: what comes after a pause counts."""
    left = list(answers)

    async def answer(stream: MemoryStream) -> None:
        await stream.receive_some()
        if text := left.pop(0):
            await stream.send_all(text)
        await stream.aclose()

    async with trio.open_nursery() as nursery:

        async def connect(host: str, port: int) -> MemoryStream:
            ours, theirs = memory_stream_pair()
            nursery.start_soon(answer, theirs)
            return ours

        with pytest.raises(kind, match=r"no TLS with localhost:9093: it does not speak TLS") as caught:
            await TlsConnect(connect, client(cafile=pki.cafile))("localhost", 9093)
        assert caught.type is kind
    assert left == []


async def test_a_broker_that_leaves_during_the_handshake(pki: Pki) -> None:
    """It may come back: that is worth another attempt."""
    ours, theirs = memory_stream_pair()
    await theirs.aclose()

    async def connect(host: str, port: int) -> MemoryStream:
        return ours

    with pytest.raises(KafkaConnectionError, match="perhaps this listener does not speak TLS"):
        await TlsConnect(connect, client(cafile=pki.cafile))("localhost", 9093)


async def test_a_silent_broker(pki: Pki, autojump_clock: Any) -> None:
    """The handshake has its time."""
    ours, _theirs = memory_stream_pair()

    async def connect(host: str, port: int) -> MemoryStream:
        return ours

    with pytest.raises(KafkaConnectionError, match="no answer within 500 ms"):
        await TlsConnect(connect, client(cafile=pki.cafile), timeout_ms=500)("localhost", 9093)


@pytest.mark.parametrize("certificate", [None, "stranger"])
async def test_a_client_that_is_not_trusted(pki: Pki, certificate: str | None) -> None:
    """In TLS 1.3 it hears of it with its first read: the cause of what breaks then."""
    files = {} if certificate is None else {"certfile": pki.issue("stranger", "x", ca=pki.other_ca)}
    meeting = Meeting(
        client(cafile=pki.cafile, **files), server("required", cafile=pki.cafile, certfile=pki.broker)
    )
    await meeting.take_place()
    assert isinstance(meeting.server_error, SslAuthenticationError)
    assert meeting.client is not None
    with pytest.raises(trio.BrokenResourceError) as caught:
        await meeting.client.receive_some()
    reason = authentication_cause(caught.value)
    assert isinstance(reason, AuthenticationError)
    words = "requires a client certificate" if certificate is None else "rejects this side's certificate"
    assert words in str(reason)


async def test_tls_1_2_says_that_a_client_certificate_may_be_missing(pki: Pki) -> None:
    """It hears "handshake failure" and no more, and the error spoke of TLS versions and ciphers alone."""
    context = client(cafile=pki.cafile)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    meeting = Meeting(context, server("required", cafile=pki.cafile, certfile=pki.broker))
    await refused(meeting, "requires a client certificate and got none, or there is no TLS version")


async def test_a_stream_that_broke_before_is_no_error_without_end(pki: Pki) -> None:
    """Trio's second error has no cause, and it was raised from itself: the search for a cause never ended."""
    ours, theirs = memory_stream_pair()
    stream = TlsStream(ours, client(cafile=pki.cafile), "localhost:9093", host="localhost")
    await theirs.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    errors = []
    for attempt in (stream.receive_some, stream.receive_some, lambda: stream.send_all(b"x")):
        with pytest.raises(trio.BrokenResourceError, match="does not speak TLS") as caught:
            await attempt()
        errors.append(caught.value)
    assert all(isinstance(authentication_cause(error), SslAuthenticationError) for error in errors)
    itself = ValueError("its own cause")
    itself.__cause__ = itself
    assert authentication_cause(itself) is None


async def test_a_name_of_another_script_is_asked_for_in_ascii(pki: Pki) -> None:
    """TLS knows no other names; the certificate here has another one."""
    meeting = Meeting(client(cafile=pki.cafile), server(certfile=pki.broker))
    error = await refused(meeting, "its certificate is for another name", host="bücher.example")
    assert "xn--bcher-kva.example" in str(error)


async def test_old_versions_are_not_spoken(pki: Pki) -> None:
    """TLS 1.2 is the oldest."""
    old = client(cafile=pki.cafile)
    assert old.minimum_version is ssl.TLSVersion.TLSv1_2
    assert server(certfile=pki.broker).minimum_version is ssl.TLSVersion.TLSv1_2
    newest_only = server(certfile=pki.broker)
    newest_only.minimum_version = ssl.TLSVersion.TLSv1_3
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    await refused(Meeting(old, newest_only), "no TLS version and cipher that both sides allow")


def encrypted(pki: Pki, folder: Path) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = Path(pki.client).read_bytes()
    key = load_pem_private_key(text, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hunter2"),
    )
    path = folder / "encrypted.pem"
    path.write_bytes(key + text[text.index(b"-----BEGIN CERT") :])
    return str(path)


def text_of(path: str) -> str:
    return Path(path).read_text()


async def test_files_may_be_pem_texts_and_keys_encrypted(pki: Pki, tmp_path: Path) -> None:
    """As Java's ssl.keystore.key and ssl.truststore.certificates are; a secret text is read as it is."""
    text = text_of(pki.client)
    key, chain = text[: text.index("-----BEGIN CERT")], text[text.index("-----BEGIN CERT") :]
    for files in (
        {"certfile": chain, "keyfile": Secret(key)},
        {"certfile": Secret(text)},
        {"certfile": encrypted(pki, tmp_path), "password": Secret("hunter2")},
    ):
        context = client(cafile=text_of(pki.cafile), **files)
        meeting = Meeting(context, server("required", cafile=pki.cafile, certfile=pki.broker))
        await meeting.take_place()
        assert meeting.server is not None


def test_bad_files_are_told_before_anything_is_connected(pki: Pki, tmp_path: Path) -> None:
    """The error names the option; no password is asked for at the terminal, and no password is shown."""
    nothing, binary = tmp_path / "nothing", tmp_path / "binary"
    nothing.write_text("nothing")
    binary.write_bytes(b"\x30\x82")
    locked = encrypted(pki, tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cafile": "/missing"}, "ssl_cafile='/missing': No such file"),
        ({"cafile": str(nothing)}, "ssl_cafile=.* holds no certificates in PEM"),
        ({"cafile": str(binary)}, "is not PEM but binary, like a Java keystore"),
        ({"certfile": "/missing"}, "ssl_certfile='/missing': No such file"),
        ({"certfile": str(nothing)}, "ssl_certfile=.* holds, with ssl_keyfile, no certificate and key"),
        ({"certfile": pki.client, "keyfile": pki.broker}, "ssl_keyfile is not the key of ssl_certfile"),
        ({"keyfile": pki.client}, "ssl_keyfile is given without ssl_certfile"),
        ({"certfile": locked}, "the key needs a password: set ssl_password"),
        ({"certfile": locked, "password": Secret("hunter3")}, "ssl_password does not open the key"),
        ({"crlfile": str(nothing)}, "ssl_crlfile=.* holds no certificates"),
        ({"ciphers": "ROT13"}, "ssl_ciphers='ROT13': OpenSSL knows none"),
    ]
    for files, words in cases:
        with pytest.raises(KafkaConfigurationError, match=words) as caught:
            client(**{"cafile": pki.cafile, **files})
        assert "hunter" not in str(caught.value)


def test_what_a_broker_needs(pki: Pki) -> None:
    """A certificate; and CAs, if it wants to see its clients'."""
    with pytest.raises(KafkaConfigurationError, match="ssl_certfile is missing: a TLS listener"):
        server()
    with pytest.raises(KafkaConfigurationError, match="ssl_cafile is missing: it names the CAs"):
        server("requested", certfile=pki.broker)


@pytest.mark.parametrize("name", ["", ".kafka", "ü" * 64, "x" * 300])
async def test_a_name_that_tls_cannot_ask_for_is_a_failed_connection(name: str) -> None:
    """A proxy may reach such a host. OpenSSL's error ended the producer's loop, as if it were a bug."""
    ours, theirs = memory_stream_pair()

    async def connect(host: str, port: int) -> MemoryStream:
        return ours

    with pytest.raises(KafkaConnectionError, match="the host name is invalid"):
        await TlsConnect(connect, client())(name, 9092)
    assert await theirs.receive_some(1) == b""  # and the stream below is closed
