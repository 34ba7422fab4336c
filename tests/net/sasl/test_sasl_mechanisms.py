"""The table, PLAIN, OAUTHBEARER and tokens without a signature."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from support.security.sasl_kit import Users, authenticated, converse, credentials

from splashdam.model.errors import SaslError
from splashdam.model.secrets import Secret
from splashdam.net.sasl.mechanisms import MECHANISMS, Authenticated, Credentials, Refusal
from splashdam.net.sasl.oauthbearer import OAuthBearerServer
from splashdam.net.sasl.plain import PlainServer
from splashdam.net.sasl.unsecured_jws import UnsecuredToken, check_unsecured, unsecured_token

TOKEN = unsecured_token("anna", 1000, lifetime_s=60)


class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """As applications of kafka-python have one."""

    def __init__(self, token: Any = TOKEN, **extensions: str) -> None:
        self._token = token
        self._extensions = extensions

    def token(self) -> Any:
        if isinstance(self._token, Exception):
            raise self._token
        return self._token

    def extensions(self) -> dict[str, str]:
        return self._extensions


def bearer(provider: object) -> Credentials:
    return Credentials("broker", token_provider=provider)


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_two_halves_agree(name: str) -> None:
    """The right password gets in as its user, a wrong one does not."""
    users = Users(anna="s3cret")
    assert await authenticated(name, users, credentials()) == Authenticated("anna")
    assert await authenticated(name, users, credentials(password="wrong")) is None
    assert await authenticated(name, users, credentials("nobody")) is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\0anna", "expected 3 tokens, got 2"),
        (b"\0\0s3cret", "username not specified"),
        (b"\0anna\0", "password not specified"),
        (b"\0anna\0wrong", "Invalid username or password"),
        (b"ben\0anna\0s3cret", "authorization id that is different"),
        (b"\0anna\0\xff", "not UTF-8"),
    ],
    ids=repr,
)
def test_plain_is_refused_in_kafkas_words(message: bytes, words: str) -> None:
    """Java's clients log them."""
    with pytest.raises(Refusal, match=words):
        PlainServer(Users(anna="s3cret")).step(message)


def test_kafka_pythons_plain() -> None:
    """A client that we did not write."""
    config = {"sasl_plain_username": "anna", "sasl_plain_password": "s3cret", "security_protocol": "SASL_SSL"}
    client, server = SaslMechanismPlain(**config), PlainServer(Users(anna="s3cret"))
    assert server.step(client.auth_bytes()) == b""
    assert server.outcome == Authenticated("anna")


async def test_tokens_get_in() -> None:
    """Tokens come from kafka-python's providers, callables or async callables.

    They may carry extensions, and are used until they expire.
    """
    users = Users()
    users.now_s = 1010

    async def later() -> str:
        return TOKEN

    for provider in (Provider(traceId="7", group="a b"), lambda: TOKEN, later, Provider()):
        outcome = await authenticated("OAUTHBEARER", users, bearer(provider))
        assert outcome == Authenticated("anna", expires_at_ms=1_060_000)
        if provider is not later and getattr(provider, "_extensions", {}):
            assert users.extensions == {"traceId": "7", "group": "a b"}
    assert (await authenticated("OAUTHBEARER", users, bearer(UnsecuredToken("ben")))) is None  # not valid yet


def test_kafka_pythons_oauth() -> None:
    """A client that we did not write, with extensions; it acknowledges a refusal as we do."""
    users = Users()
    users.now_s = 1010
    client, server = SaslMechanismOAuth(sasl_oauth_token_provider=Provider(a="b")), OAuthBearerServer(users)
    assert server.step(client.auth_bytes()) == b""
    assert users.extensions == {"a": "b"}
    users.now_s = 2000
    client, server = SaslMechanismOAuth(sasl_oauth_token_provider=Provider()), OAuthBearerServer(users)
    client.receive(server.step(client.auth_bytes()))
    with pytest.raises(Refusal, match="expired"):
        server.step(client.auth_bytes())


async def test_a_refused_token_is_told_as_json() -> None:
    """RFC 7628, 3.2.2: the client acknowledges it, keeps the reason, and the exchange fails."""
    server = OAuthBearerServer(Users())
    client = await MECHANISMS["OAUTHBEARER"].open_client(bearer(lambda: "not.a.token"))
    challenge = server.step(client.start())
    assert json.loads(challenge) == {"status": "invalid_token"}
    assert client.step(challenge) == b"\x01"
    assert client.complaint == "status invalid_token"
    with pytest.raises(Refusal, match="not an unsecured JWS"):
        server.step(b"\x01")
    with pytest.raises(SaslError, match="rejected the token: status invalid_token"):
        client.step(challenge)


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (Provider(None), "returned NoneType"),
        (Provider(b"x"), "returned bytes"),
        (Provider("two words"), "a str that is no valid token"),
        (Provider("x\x01auth=y"), "a str that is no valid token"),
        (Provider(TimeoutError("hunter2")), r"token\(\) raised TimeoutError\."),
        (Provider(TOKEN, auth="x"), "extension 'auth' is not valid"),
        (Provider(TOKEN, a="\x01"), "extension 'a' is not valid"),
    ],
    ids=[
        "None",
        "bytes",
        "two words",
        "a separator",
        "raises",
        "a reserved extension",
        "a control character",
    ],
)
async def test_a_provider_that_fails(provider: Provider, words: str) -> None:
    """What it returned is not in the error, since it may be half a token."""
    with pytest.raises(SaslError, match=words):
        await MECHANISMS["OAUTHBEARER"].open_client(bearer(provider))


@pytest.mark.parametrize(
    ("token", "now_s", "words"),
    [
        (TOKEN, 1060, "has expired"),
        (TOKEN, 969, "not valid yet"),
        ("x", 1010, "not an unsecured JWS"),
        (TOKEN + "sig", 1010, "not an unsecured JWS"),
        ("e30.e30.", 1010, "algorithm is not none"),
        ("!.e30.", 1010, "cannot be read"),
        ("eyJhbGciOiJub25lIn0.e30.", 1010, "no subject"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", 1010, "does not say when it expires"),
    ],
)
def test_tokens_that_are_none(token: str, now_s: float, words: str) -> None:
    """Each is told apart, in the broker's log; the client hears invalid_token."""
    with pytest.raises(Refusal, match=words):
        check_unsecured(token, now_s)


@given(message=st.binary())
def test_bytes_of_any_kind_are_refused(message: bytes) -> None:
    """Nothing else is raised."""
    for server in (PlainServer(Users(a="b")), OAuthBearerServer(Users())):
        with pytest.raises(Refusal):
            server.step(message)


def test_a_server_may_ask_for_no_other_name() -> None:
    """The name to act for is the token's own, or left out."""
    users = Users()
    users.now_s = 1010
    named = f"n,a=ben,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    with pytest.raises(Refusal, match="authorization id"):
        OAuthBearerServer(users).step(named)
    assert OAuthBearerServer(users).step(named.replace(b"ben", b"anna")) == b""


async def test_secrets_are_not_shown() -> None:
    """Neither a password nor a token is in any repr."""
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]} {secret:>10} %s" % secret
    assert secret.encode() == b"hunter2"
    copy = pickle.loads(pickle.dumps(secret))
    assert (type(copy), copy == "hunter2") == (Secret, True)
    shown = credentials(password="hunter2")
    assert "hunter2" not in repr(shown)
    for name in ("PLAIN", "SCRAM-SHA-256"):
        assert "hunter2" not in repr(vars(await MECHANISMS[name].open_client(shown)))
    client = await MECHANISMS["OAUTHBEARER"].open_client(bearer(lambda: TOKEN))
    assert TOKEN not in repr(vars(client))


async def test_who_says_more_than_needed_is_refused() -> None:
    """PLAIN is over when all is said."""
    with pytest.raises(SaslError, match="sent a challenge after the end"):
        converse(await MECHANISMS["PLAIN"].open_client(credentials()), _Talker())


class _Talker:
    outcome: Authenticated | None = None

    def step(self, message: bytes) -> bytes:
        return b"more"
