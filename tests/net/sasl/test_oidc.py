"""Tokens from a token endpoint: kept, renewed, asked for again; and what hostile endpoints can do."""

from __future__ import annotations

import copy
import logging
import pickle
import ssl
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trio
from support.security.security_kit import Pki
from support.security.token_server import CLIENT, CLIENT_SECRET, Answer, TokenServer, answer

from splashdam.model.errors import KafkaConfigurationError, SaslError
from splashdam.model.secrets import Secret
from splashdam.net.sasl.mechanisms import MECHANISMS, Credentials
from splashdam.net.sasl.oidc import MAX_ANSWER_BYTES, OidcTokenProvider


@pytest.fixture
def server() -> Iterator[TokenServer]:
    """A token endpoint."""
    with TokenServer().running() as running:
        yield running


class Wall:
    """A clock that stands still."""

    now_s = 1e9

    def __call__(self) -> float:
        return self.now_s


def provider(server: TokenServer, **options: Any) -> OidcTokenProvider:
    return OidcTokenProvider(
        server.url, CLIENT, options.pop("secret", CLIENT_SECRET), **{"retry_backoff_ms": 1, **options}
    )


async def test_what_is_asked(server: TokenServer) -> None:
    """The client credentials grant, with a scope if there is one."""
    assert await provider(server, scope="kafka write").token()
    assert await provider(server).token()
    assert server.asked == [
        {"grant_type": "client_credentials", "scope": "kafka write"},
        {"grant_type": "client_credentials"},
    ]


async def test_a_token_is_kept_for_four_fifths_of_its_life(server: TokenServer) -> None:
    """Connections authenticate again after 85 % of a token's life, and get the next one then."""
    wall = Wall()
    tokens = provider(server, now_s=wall)
    first = await tokens.token()
    wall.now_s += 3600 * 0.79
    assert await tokens.token() is first
    wall.now_s += 3600 * 0.02
    await tokens.token()
    await tokens.token()
    assert len(server.asked) == 2


async def test_many_ask_and_one_fetches(server: TokenServer) -> None:
    """Connections to many brokers at once are one question."""
    tokens = provider(server)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(tokens.token)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ({"expires_in": "3600"}, 1),
        ({"expires_in": -5}, 2),
        ({"expires_in": True}, 2),
        ({"expires_in": 1e400}, 2),
        ({"expires_in": 10**400}, 2),
        ({}, 2),
    ],
    ids=str,
)
async def test_lifetimes(server: TokenServer, told: dict[str, Any], asked: int) -> None:
    """A token whose life nobody knows is not kept."""
    tokens = provider(server)
    server.answers += [answer(200, {"access_token": "opaque", **told})] * 2
    assert (await tokens.token(), await tokens.token()) == ("opaque", "opaque")
    assert len(server.asked) == asked


async def test_the_token_says_how_long_it_lives(server: TokenServer) -> None:
    """It counts if the endpoint names no lifetime."""
    server.lifetime_s = None
    tokens = provider(server)
    assert await tokens.token() is await tokens.token()


async def test_an_endpoint_that_is_down_for_a_moment(server: TokenServer) -> None:
    """It is asked again."""
    server.answers += [answer(503, {}), answer(429, {"error": "slow_down"}), lambda handler: None]
    assert await provider(server).token()
    assert len(server.asked) == 4


async def test_an_old_token_is_better_than_none(
    server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is valid; then the reason is told."""
    wall = Wall()
    tokens = provider(server, now_s=wall)
    first = await tokens.token()
    server.answers += [answer(400, {"error": "unauthorized_client"})] * 2
    wall.now_s += 3590
    assert await tokens.token() is first
    assert "unauthorized_client; the cached token is used while it is valid" in caplog.text
    wall.now_s += 9
    with pytest.raises(SaslError, match="400 unauthorized_client"):
        await tokens.token()


async def test_a_token_that_a_broker_refuses_is_dropped(server: TokenServer) -> None:
    """The token may have been revoked; the next connection requests another one."""
    credentials = Credentials("broker", token_provider=provider(server, extensions={"traceId": "7"}))
    side = await MECHANISMS["OAUTHBEARER"].open_client(credentials)
    assert b"\x01traceId=7\x01" in side.start()
    assert side.step(b'{"status":"invalid_token"}') == b"\x01"
    await MECHANISMS["OAUTHBEARER"].open_client(credentials)
    assert len(server.asked) == 2


def drip(server: TokenServer) -> Answer:
    """A header, and never an end."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not server.done.wait(0.01):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return send


def silence(server: TokenServer) -> Answer:
    return lambda _handler: server.done.wait(300)


def cut_short(_server: TokenServer) -> Answer:
    return answer(200, b"x", **{"Content-Length": "9"})


@pytest.mark.parametrize(
    ("hostile", "words"),
    [
        (answer(401, {"error": "invalid_client"}), f"rejected the client '{CLIENT}': 401 invalid_client"),
        (answer(400, {"error": CLIENT_SECRET}), r"rejected the client 'orders-service': 400\."),
        (answer(403, b"\xff<html>"), r"403\."),
        (answer(302, b"", Location="https://evil.example"), "returned 302, a redirect"),
        (answer(307, b"", Location="https://evil.example"), "returned 307, a redirect"),
        (answer(200, b"<html>"), "without a JSON object"),
        (answer(200, [1]), "without a JSON object"),
        (answer(200, b"[" * 100_000), "without a JSON object"),
        (answer(200, {"access_token": ""}), "without an access_token"),
        (answer(200, {"access_token": 7}), "without an access_token"),
        (answer(200, {"access_token": "x", "token_type": "mac"}), "not of type Bearer"),
        (answer(200, b" " * (MAX_ANSWER_BYTES + 1)), "larger than any token"),
        (answer(401, {"error": "a\r\nb" * 1000, "error_description": 7}), "401 a b"),
    ],
)
async def test_answers_that_are_of_no_use(server: TokenServer, hostile: Any, words: str) -> None:
    """The error names the endpoint and not the secret, and nobody is asked again."""
    server.answers += [hostile]
    with pytest.raises(SaslError, match=words) as caught:
        await provider(server).token()
    text = str(caught.value)
    assert "OAUTHBEARER: the token endpoint http://localhost:" in text
    assert "tenant" not in text
    assert len(text) < 1000
    assert CLIENT_SECRET not in text
    assert len(server.asked) == 1


@pytest.mark.parametrize("hostile", [drip, silence, cut_short])
async def test_answers_without_an_end(server: TokenServer, hostile: Callable[[TokenServer], Answer]) -> None:
    """They cost the time that is allowed, and no thread goes on with them."""
    server.answers += [hostile(server)] * 50
    with pytest.raises(
        SaslError, match=r"returned no token within 200 ms: (no answer within 100|its response is)"
    ):
        await provider(server, timeout_ms=200, retry_backoff_ms=50).token()


async def test_nobody_listens() -> None:
    """The reason is told in the end."""
    with TokenServer().running() as gone:
        pass
    with pytest.raises(SaslError, match=r"returned no token within 50 ms: ConnectionRefusedError"):
        await provider(gone, timeout_ms=50).token()


async def test_a_wrong_secret(server: TokenServer) -> None:
    """Told by the endpoint's own words."""
    with pytest.raises(SaslError, match="401 invalid_client: who are you"):
        await provider(server, secret="wrong").token()


async def test_tls(tmp_path: Path) -> None:
    """The endpoint's certificate has to be right."""
    pki = Pki(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.broker)
    with TokenServer(context).running() as server:
        assert await provider(server, cafile=pki.cafile).token()
        with pytest.raises(SaslError, match=r"is not trusted: .*; set cafile to its CAs"):
            await provider(server, cafile=pki.other_cafile).token()
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ftp://x/token", "c", "s"), "must be a URL like https"),
        (("https://", "c", "s"), "must be a URL like https"),
        (("https://x:99999/", "c", "s"), "must be a URL like https"),
        (("https://x/a\r\nb", "c", "s"), "must be a URL like https"),
        (("https://x/a#b", "c", "s"), "must be a URL like https"),
        (("http://idp.example.com/", "c", "s"), "would go to idp.example.com in plain text"),
        (("http://localhost.example.com/", "c", "s"), "in plain text"),
        (("https://me:hunter2@x/", "c", "s"), "must not contain a user or password"),
        (("https://x/", "", "s"), "client_id for the token endpoint is missing"),
        (("https://x/", "c", ""), "client_secret for the token endpoint is missing"),
        (("https://x/", "a:b", "s"), "client_id contains a colon"),
    ],
)
def test_what_cannot_be_right(arguments: tuple[str, str, str], words: str) -> None:
    """An impossible setting raises at once."""
    with pytest.raises(KafkaConfigurationError, match=words) as caught:
        OidcTokenProvider(*arguments)
    assert "hunter2" not in str(caught.value)


async def test_it_can_be_shown_copied_and_pickled(server: TokenServer) -> None:
    """Without its secret; what was fetched stays where it was."""
    tokens = provider(server, extensions={"a": "b"})
    token = await tokens.token()
    assert CLIENT_SECRET not in f"{tokens!r} {tokens} {vars(tokens)}"
    assert token not in f"{vars(tokens)}"
    for other in (pickle.loads(pickle.dumps(tokens)), copy.deepcopy(tokens)):
        assert await other.token()
        assert other.extensions() == {"a": "b"}
    assert len(server.asked) == 3
    assert isinstance(token, Secret)


async def test_nothing_secret_is_logged(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    """That includes the level DEBUG."""
    caplog.set_level(logging.DEBUG)
    token = await provider(server).token()
    assert CLIENT_SECRET not in caplog.text
    assert token.encode().decode() not in caplog.text
