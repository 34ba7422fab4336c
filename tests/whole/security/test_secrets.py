"""What is seen of sessions that succeed and fail: no secret, in plain text, base64, hex or as in a URL.

Seen are log records with their arguments and tracebacks, errors with causes and contexts and the variables of
every frame, what objects print, metrics, and what the broker prints of itself.
"""

from __future__ import annotations

import base64
import binascii
import logging
import pickle
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from support.security.security_kit import PASSWORD, USER, secure_broker
from support.security.token_server import CLIENT, CLIENT_SECRET, Answer, TokenServer, answer

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import AuthenticationError, SaslError
from splashdam.net.sasl.mechanisms import Authenticated
from splashdam.net.sasl.oidc import OidcTokenProvider
from splashdam.net.sasl.unsecured_jws import unsecured_token

WRONG = "wrong/+hunter3-nobody"
GOOD_TOKEN = unsecured_token(USER, time.time())
BAD_TOKEN = unsecured_token("nobody-at-all", 0.0)
SECRETS = (PASSWORD, WRONG, CLIENT_SECRET, GOOD_TOKEN, BAD_TOKEN)


def good_token() -> str:
    return GOOD_TOKEN


def bad_token() -> str:
    return BAD_TOKEN


def forms(secret: str) -> Iterator[str]:
    """How a secret might be shown; base64 looks different at each place in what is encoded with it."""
    data = secret.encode()
    yield from {secret, quote(secret, safe=""), quote_plus(secret), data.hex(), repr(data)[2:-1]}
    yield binascii.hexlify(data, " ").decode()
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"x" * before + data).decode()[4 if before else 0 :].rstrip("=")[:-2]


def leaks(shown: list[str], *secrets: str) -> list[str]:
    """The texts that show one, as far as they are around it."""
    found = [(text, text.find(form)) for text in shown for secret in secrets for form in forms(secret)]
    return [text[max(0, place - 150) : place + 150] for text, place in found if place >= 0]


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc", b"user:"])
def test_the_search_finds(before: bytes) -> None:
    """What it is there for."""
    for shown in (base64.b64encode(before + PASSWORD.encode() + b":more").decode(), PASSWORD.encode().hex()):
        assert any(form in shown for form in forms(PASSWORD))


def with_everything(error: BaseException | None) -> Iterator[str]:
    """What a careless program prints of an error: all of its chain, with the variables of each frame."""
    if error is None:
        return
    yield from (str(error), repr(error), repr(vars(error)), repr(error.args))
    frames = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    yield from (repr(frame.locals) for frame in frames if frame.filename != __file__)
    yield from with_everything(error.__cause__)
    yield from with_everything(error.__context__ if error.__context__ is not error.__cause__ else None)


def of_records(records: list[logging.LogRecord]) -> Iterator[str]:
    for record in records:
        yield record.getMessage()
        yield repr(vars(record))
        if record.exc_info:
            yield from with_everything(record.exc_info[1])


def of_producer(producer: KafkaProducer) -> Iterator[str]:
    core = producer._core
    yield from (repr(producer), f"{producer.config} {producer.config!r}", str(producer.last_failure))
    yield from (repr(core.settings), repr(vars(core)), repr(vars(core.sender)), repr(producer.metrics()))
    yield repr(pickle.loads(pickle.dumps(producer.config)))
    for option in ("sasl_plain_password", "sasl_oauthbearer_client_secret", "sasl_oauth_token_provider"):
        yield f"{producer.config.get(option)}"


def session(broker: EmbeddedBroker, options: dict[str, Any]) -> tuple[bool, list[str]]:
    """Sends a record: whether it got in, and what can be seen of it."""
    shown: list[str] = []
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **options
    ) as producer:
        future = producer.send("orders", b"v")
        shown.append(repr(future))
        try:
            future.get(300)
        except AuthenticationError as error:
            shown += with_everything(error)
        shown += of_producer(producer)
        return not future.failed(), shown


def logins(server: TokenServer) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Whether it should get in, and how it tries."""
    for is_right in (True, False):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            password = PASSWORD if is_right else WRONG
            yield (
                is_right,
                {
                    "sasl_mechanism": mechanism,
                    "sasl_plain_username": USER,
                    "sasl_plain_password": password,
                },
            )
        oauth: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER"}
        yield is_right, {**oauth, "sasl_oauth_token_provider": good_token if is_right else bad_token}
        secret = CLIENT_SECRET if is_right else WRONG
        provider = OidcTokenProvider(server.url, CLIENT, secret)
        yield is_right, {**oauth, "sasl_oauth_token_provider": provider}
        url = {"sasl_oauthbearer_token_endpoint_url": server.url, "sasl_oauthbearer_client_id": CLIENT}
        yield is_right, {**oauth, **url, "sasl_oauthbearer_client_secret": secret}


def test_no_session_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every mechanism, right and wrong, at DEBUG."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with TokenServer().running() as server, secure_broker(tmp_path, protocol="SASL_PLAINTEXT") as broker:
        for is_right, options in logins(server):
            got_in, seen = session(broker, options)
            assert got_in is is_right, options
            shown += seen
        shown += [
            repr(vars(broker)),
            repr(vars(broker.users)),
            (tmp_path / "splashdam-users.json").read_text(),
        ]
    shown += of_records(caplog.records)
    assert leaks(shown, *SECRETS) == []


def test_a_token_validator_that_says_too_much(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An application's own error may hold the token: neither side's log nor error repeats it."""
    caplog.set_level(logging.DEBUG)

    def validator(token: str) -> Authenticated:
        raise ValueError(f"what is {token}?")

    with secure_broker(tmp_path, protocol="SASL_PLAINTEXT", token_validator=validator) as broker:
        options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": good_token}
        got_in, shown = session(broker, options)
    assert not got_in
    shown += of_records(caplog.records)
    assert leaks(shown, GOOD_TOKEN) == []


@pytest.mark.parametrize(
    "hostile",
    [
        answer(401, {"error": "invalid_client"}),
        answer(302, b""),
        answer(500, {}),
        answer(200, b"x" * 300_000),
        answer(200, b"x", **{"Content-Length": "9"}),
        answer(200, {"access_token": GOOD_TOKEN, "token_type": "mac"}),
    ],
)
async def test_errors_of_a_token_endpoint(hostile: Answer) -> None:
    """Met directly, with all frames down to the thread that talks to it."""
    with TokenServer().running() as server:
        server.answers += [hostile] * 50
        provider = OidcTokenProvider(server.url, CLIENT, CLIENT_SECRET, timeout_ms=300)
        with pytest.raises(SaslError) as caught:
            await provider.token()
    assert leaks(list(with_everything(caught.value)), CLIENT_SECRET) == []
