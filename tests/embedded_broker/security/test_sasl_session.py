"""The broker's SASL, request by request: order, refusals, old clients, sessions that end."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_talk import Talk
from support.security.sasl_kit import Users
from support.security.security_kit import PASSWORD, USER, MemoryCluster
from trio.testing import MockClock

from splashdam.embedded_broker.execution.answers import CloseConnectionError
from splashdam.embedded_broker.security.authentication import TRANSITIONS, SaslSession, SessionState
from splashdam.net.clock import SystemClock
from splashdam.net.sasl.unsecured_jws import unsecured_token
from splashdam.wire.framing import framed
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest

PLAIN = b"\0".join((b"", USER.encode(), PASSWORD.encode()))


@pytest.fixture
async def cluster(autojump_clock: MockClock) -> AsyncIterator[MemoryCluster]:
    """A broker whose sessions last for a second."""
    cluster = MemoryCluster(autojump_clock, connections_max_reauth_ms=1000)
    async with cluster.broker():
        yield cluster


@pytest.fixture
async def talk(cluster: MemoryCluster) -> Talk:
    """A connection to it."""
    return Talk(await cluster.network.connect("broker", 9092))


async def handshake(talk: Talk, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await talk.ask(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(talk: Talk, message: bytes = PLAIN, version: int = 2) -> SaslAuthenticateResponse:
    return await talk.ask(SaslAuthenticateRequest(auth_bytes=message), version)


async def ask_metadata(talk: Talk) -> Any:
    return await talk.ask(MetadataRequest(topics=[]), 9)


async def test_versions_handshake_proof_requests(autojump_clock: MockClock, talk: Talk) -> None:
    """The order of every client."""
    assert (await talk.ask(ApiVersionsRequest(), 0)).error_code == 0
    handshaken = await handshake(talk)
    assert (handshaken.error_code, len(handshaken.mechanisms)) == (0, 4)
    authenticated = await authenticate(talk)
    assert (authenticated.error_code, authenticated.session_lifetime_ms) == (0, 1000)
    assert (await ask_metadata(talk)).brokers


async def test_nothing_else_is_answered_before(
    autojump_clock: MockClock, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka does: the connection ends."""
    await talk.send(MetadataRequest(topics=[]), 9)
    assert await talk.is_closed()
    assert "API key 3 is not answered before authentication has ended" in caplog.text


async def test_nothing_else_is_answered_in_between(autojump_clock: MockClock, talk: Talk) -> None:
    """Before and after the handshake: 34 if the answer has a field for it, and the connection ends."""
    await handshake(talk)
    await talk.send(MetadataRequest(topics=[]), 9)
    assert await talk.is_closed()


async def test_a_request_in_between_is_answered_34(autojump_clock: MockClock, talk: Talk) -> None:
    """As Kafka does."""
    await handshake(talk)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    assert (await talk.ask(request, 4)).error_code == 34
    assert await talk.is_closed()


async def test_a_proof_before_the_handshake(autojump_clock: MockClock, talk: Talk) -> None:
    """The connection ends, as in Kafka; it was answered 34."""
    await talk.send(SaslAuthenticateRequest(auth_bytes=PLAIN), 2)
    assert await talk.is_closed()


async def test_versions_are_told_once(autojump_clock: MockClock, talk: Talk) -> None:
    """A refused question may be put again; after an answer only a handshake is taken, as in Kafka."""
    refused = ApiVersionsRequest(client_software_name="-", client_software_version="-")
    assert (await talk.ask(refused, 3)).error_code == 42
    assert (await talk.ask(ApiVersionsRequest(), 0)).error_code == 0
    await talk.send(ApiVersionsRequest(), 0)
    assert await talk.is_closed()


async def test_a_session_without_an_end_is_not_renewed(autojump_clock: MockClock) -> None:
    """34 to both requests, as Kafka answers them, and the connection goes on."""
    cluster = MemoryCluster(autojump_clock)
    async with cluster.broker():
        talk = Talk(await cluster.network.connect("broker", 9092))
        await handshake(talk)
        assert (await authenticate(talk)).session_lifetime_ms == 0
        assert (await handshake(talk)).error_code == 34
        answer = await authenticate(talk)
        assert (answer.error_code, answer.error_message) == (
            34,
            "SaslAuthenticate request received after successful authentication",
        )
        assert (await ask_metadata(talk)).brokers


async def test_two_handshakes(autojump_clock: MockClock, talk: Talk) -> None:
    """34."""
    await handshake(talk)
    assert (await handshake(talk)).error_code == 34
    assert await talk.is_closed()


async def test_an_unknown_mechanism(autojump_clock: MockClock, talk: Talk) -> None:
    """33, with those that are offered; then the connection ends."""
    handshaken = await handshake(talk, "GSSAPI")
    assert handshaken.error_code == 33
    assert handshaken.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    assert await talk.is_closed()


async def test_a_strangers_long_mechanism_does_not_fill_the_log(
    autojump_clock: MockClock, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """A name may have 32 KB, and each stranger had all of it in the log."""
    await handshake(talk, "NOPE" * 8000)
    assert await talk.is_closed()
    assert "NOPE" in caplog.text
    assert len(caplog.text) < 500


async def test_wrong_credentials_are_answered_late(
    autojump_clock: MockClock, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """58 with Kafka's text, after 100 ms; the log says who, not what."""
    await handshake(talk)
    started = trio.current_time()
    answer = await authenticate(talk, b"\0anna\0hunter3")
    assert trio.current_time() - started == pytest.approx(0.1)
    assert (answer.error_code, answer.error_message) == (
        58,
        "Authentication failed: Invalid username or password",
    )
    assert await talk.is_closed()
    assert "hunter3" not in caplog.text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_old_clients_send_bare_tokens(autojump_clock: MockClock, talk: Talk, mechanism: str) -> None:
    """After SaslHandshake v0 there are no headers; then requests have them again."""
    from splashdam.model.secrets import Secret
    from splashdam.net.sasl.mechanisms import MECHANISMS, Credentials

    side = await MECHANISMS[mechanism].open_client(Credentials("b", username=USER, password=Secret(PASSWORD)))
    assert (await handshake(talk, mechanism, 0)).error_code == 0
    message: bytes | None = side.start()
    while message is not None:
        await talk.stream.send_all(framed(message))
        if mechanism == "PLAIN":
            assert await talk.stream.receive_some(4) == b"\0\0\0\0"
            break
        message = side.step(await talk.frame())
    assert (await ask_metadata(talk)).brokers


async def test_a_bare_token_that_is_wrong(autojump_clock: MockClock, talk: Talk) -> None:
    """There is no way to say so; and who guesses in the old way is kept waiting as long."""
    await handshake(talk, version=0)
    started = trio.current_time()
    await talk.stream.send_all(framed(b"\0anna\0wrong"))
    assert await talk.is_closed()
    assert trio.current_time() - started >= 0.1


@pytest.mark.parametrize("version", range(2))
async def test_hashing_a_password_does_not_hold_up_the_loop(
    autojump_clock: MockClock, cluster: MemoryCluster, talk: Talk, version: int
) -> None:
    """A million iterations take half a second, in which no other client would be served."""
    beside, run = [], cluster.files.run

    async def noted(work: Any) -> Any:
        beside.append(work)
        return await run(work)

    cluster.files.run = noted  # type: ignore[method-assign]  # to see who uses it
    await handshake(talk, version=version)
    if version:
        await authenticate(talk)
    else:
        await talk.stream.send_all(framed(PLAIN))
        assert await talk.stream.receive_some(4) == b"\0\0\0\0"
    assert len(beside) == 1
    assert (await ask_metadata(talk)).brokers


@pytest.mark.parametrize("exp", ["1e400", "-1e400", "NaN", "9" * 400, "1e30"])
async def test_a_token_that_ends_at_no_time_at_all(
    autojump_clock: MockClock, talk: Talk, caplog: Any, exp: str
) -> None:
    """It is refused: the answer has 64 bits for the milliseconds that are left."""
    parts = [b'{"alg":"none"}', f'{{"sub":"anna","exp":{exp}}}'.encode()]
    token = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts) + b"."
    await handshake(talk, "OAUTHBEARER")
    answer = await authenticate(talk, b"n,,\x01auth=Bearer " + token + b"\x01\x01")
    assert answer.auth_bytes == b'{"status":"invalid_token"}'
    assert "the broker failed" not in caplog.text


async def test_a_session_that_lasts_longer_than_64_bits_can_say(autojump_clock: MockClock) -> None:
    """A validator of one's own may say so."""
    from splashdam.net.sasl.mechanisms import Authenticated

    cluster = MemoryCluster(autojump_clock, token_validator=lambda token: Authenticated("anna", 1e30))
    async with cluster.broker():
        talk = Talk(await cluster.network.connect("broker", 9092))
        await handshake(talk, "OAUTHBEARER")
        answer = await authenticate(talk, b"n,,\x01auth=Bearer token\x01\x01")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 2**63 - 1)


async def test_a_session_that_is_not_renewed_ends(
    autojump_clock: MockClock, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """With the next request after its time (KIP-368)."""
    await handshake(talk)
    await authenticate(talk)
    await trio.sleep(0.9)
    await ask_metadata(talk)
    await trio.sleep(0.2)
    await talk.send(MetadataRequest(topics=[]), 9)
    assert await talk.is_closed()
    assert "the session of 'anna' has expired" in caplog.text


async def test_a_session_is_renewed(autojump_clock: MockClock, talk: Talk) -> None:
    """Also when its time is over already; requests that came before are answered before."""
    await handshake(talk)
    await authenticate(talk)
    for _ in range(5):
        await trio.sleep(1.5)
        assert (await handshake(talk)).error_code == 0
        assert (await authenticate(talk)).session_lifetime_ms == 1000
        assert (await ask_metadata(talk)).brokers


async def test_a_session_stays_with_user_and_mechanism(
    autojump_clock: MockClock, cluster: MemoryCluster
) -> None:
    """As in Kafka: 58 for another user. To an unknown mechanism Kafka only ends the connection."""

    def token(user: str) -> bytes:
        made = unsecured_token(user, cluster.clock.wall_ms() / 1000)
        return b"n,,\x01auth=Bearer " + made.encode() + b"\x01\x01"

    talk = Talk(await cluster.network.connect("broker", 9092))
    await handshake(talk, "OAUTHBEARER")
    await authenticate(talk, token("anna"))
    await handshake(talk, "OAUTHBEARER")
    refused = await authenticate(talk, token("ben"))
    assert (refused.error_code, "Cannot change principals" in (refused.error_message or "")) == (58, True)
    other = Talk(await cluster.network.connect("broker", 9092))
    await handshake(other)
    await authenticate(other)
    assert (await handshake(other, "NOPE")).error_code == 33
    assert await other.is_closed()


@pytest.mark.parametrize("version", range(2))
async def test_a_handshake_with_another_mechanism_was_refused(
    autojump_clock: MockClock, talk: Talk, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """A client that renews its session with another one got 33; Kafka takes the handshake, then closes."""
    await handshake(talk)
    await authenticate(talk)
    handshaken = await handshake(talk, "SCRAM-SHA-256", version)
    assert (handshaken.error_code, len(handshaken.mechanisms)) == (0, 4)
    await talk.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    assert await talk.is_closed()
    assert "the session of 'anna' began with PLAIN, and is not renewed with another" in caplog.text


async def test_strangers_send_small_requests(autojump_clock: MockClock, talk: Talk) -> None:
    """512 KiB at most, until they are known."""
    await talk.stream.send_all((600_000).to_bytes(4, "big"))
    assert await talk.is_closed()


@pytest.mark.parametrize("version", range(3))
async def test_a_broker_that_asks_nobody(autojump_clock: MockClock, version: int) -> None:
    """34 to both, as Kafka answers on PLAINTEXT listeners."""
    cluster = MemoryCluster(autojump_clock, "PLAINTEXT")
    async with cluster.broker():
        talk = Talk(await cluster.network.connect("broker", 9092))
        assert (await handshake(talk, version=min(version, 1))).error_code == 34
        assert (await authenticate(talk, version=version)).error_code == 34
        assert (await ask_metadata(talk)).brokers


async def test_a_client_that_speaks_tls_to_a_plaintext_listener(
    autojump_clock: MockClock, talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what it was, instead of a frame of 369,295,617 bytes."""
    await talk.stream.send_all(bytes.fromhex("1603010200"))
    assert await talk.is_closed()
    assert "the peer speaks TLS, and this side does not" in caplog.text


async def test_a_token_validator_of_ones_own(autojump_clock: MockClock, caplog: Any) -> None:
    """An exception of it refuses the client, and its text is not logged: it may hold the token."""
    from splashdam.net.sasl.mechanisms import Authenticated

    def check(token: str) -> Authenticated:
        if token != "good":
            raise ValueError(f"not {token}")
        return Authenticated("anna")

    caplog.set_level(logging.DEBUG)
    cluster = MemoryCluster(autojump_clock, token_validator=check)
    async with cluster.broker():
        for token, code in (("good", 0), ("bad-token", 58)):
            talk = Talk(await cluster.network.connect("broker", 9092))
            await handshake(talk, "OAUTHBEARER")
            answer = await authenticate(talk, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
            if code:
                assert answer.auth_bytes == b'{"status":"invalid_token"}'
                answer = await authenticate(talk, b"\x01")
            assert answer.error_code == code
    assert "the token validator raised ValueError" in caplog.text
    assert "bad-token" not in caplog.text


def test_the_table_of_states_has_an_end() -> None:
    """Every state can fail, and nothing leads out of failure."""
    failing = {state for state, event in TRANSITIONS if event.name == "FAIL"}
    assert failing == set(SessionState) - {SessionState.FAILED}
    assert not [state for state, _ in TRANSITIONS if state is SessionState.FAILED]


@given(
    steps=st.lists(
        st.one_of(
            st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI"]),
            st.sampled_from([b"\0anna\0s3cret", b"\0anna\0wrong", base64.b64encode(b"x")]),
            st.sampled_from([0, 3, 17, 18, 36]),
        ),
        max_size=8,
    )
)
def test_no_sequence_of_requests_avoids_authentication(steps: list[Any]) -> None:
    """A session against a model: known only after the right password, behind a handshake that was taken."""
    session = SaslSession(Users(anna="s3cret"), ["PLAIN", "SCRAM-SHA-256"], 0, SystemClock())
    chosen = ""
    for step in steps:
        if session.failure:
            break
        if isinstance(step, str):
            answer = session.choose(step, 1)
            chosen = step if not answer.error_code else ""
        elif isinstance(step, bytes):
            was_authenticated = session.is_authenticated
            session.authenticate(step)
            if session.is_authenticated and not was_authenticated:
                assert (chosen, step) == ("PLAIN", b"\0anna\0s3cret")
        else:
            try:
                session.admit(step)
            except CloseConnectionError:
                break
            assert session.is_authenticated or step in (17, 18, 36)
