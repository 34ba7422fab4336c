"""Producers that have to say who they are: refused at once, known for a time, and never silent about why."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from support.security.security_kit import PASSWORD, USER, MemoryCluster
from trio.testing import MockClock

from splashdam.model.broker_errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from splashdam.model.errors import AuthenticationError, KafkaTimeoutError, SaslError, WrongListenerError
from splashdam.net.sasl.unsecured_jws import unsecured_token

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_right_password(autojump_clock: MockClock, mechanism: str) -> None:
    """Gets records into the log."""
    cluster = MemoryCluster(autojump_clock)
    async with cluster.broker(), cluster.producer(sasl_mechanism=mechanism) as producer:
        assert (await (await producer.send("orders", b"v"))).offset == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_fails_at_once(autojump_clock: MockClock, mechanism: str) -> None:
    """``send`` fails before ``max_block_ms``.

    The next one tries again, so that a user who is added later gets in.
    """
    cluster = MemoryCluster(autojump_clock)
    async with (
        cluster.broker() as broker,
        cluster.producer("wrong", sasl_mechanism=mechanism) as producer,
    ):
        started = trio.current_time()
        for _ in range(2):
            future = await producer.send("orders", b"v")
            with pytest.raises(
                SaslAuthenticationFailedError, match=f"the {mechanism} credentials of user 'a"
            ):
                await future
        assert trio.current_time() - started < 3
        with pytest.raises(AuthenticationError):
            await producer.prepare("orders")
        broker.users.add(USER, "wrong")
        assert (await (await producer.send("orders", b"v"))).offset == 0


async def test_refusals_are_not_asked_for_in_a_hot_loop(autojump_clock: MockClock) -> None:
    """One attempt per second, the longest backoff, however many records wait."""
    cluster = MemoryCluster(autojump_clock)
    attempts = 0

    async def connect(host: str, port: int) -> Any:
        nonlocal attempts
        attempts += 1
        return await cluster.network.connect(host, port)

    async with cluster.broker(), cluster.producer("wrong") as producer:
        producer._core.connect.connect = connect
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                for _ in range(20):
                    nursery.start_soon(producer.send, "orders", b"v")
                await trio.sleep(0.5)
        assert attempts <= trio.current_time() - started + 1


async def test_a_mechanism_that_is_not_offered(autojump_clock: MockClock) -> None:
    """33, and the error names those that are."""
    cluster = MemoryCluster(autojump_clock, sasl_enabled_mechanisms="PLAIN")
    async with cluster.broker(), cluster.producer(sasl_mechanism="SCRAM-SHA-512") as producer:
        with pytest.raises(UnsupportedSaslMechanismError, match="SCRAM-SHA-512; it offers PLAIN"):
            await (await producer.send("orders", b"v"))


async def test_records_that_wait_fail_when_the_password_is_changed(autojump_clock: MockClock) -> None:
    """Records that wait for the next connection fail; acknowledged ones stay acknowledged."""
    cluster = MemoryCluster(autojump_clock)
    async with cluster.broker() as broker, cluster.producer() as producer:
        await (await producer.send("orders", b"first"))
        broker.users.add(USER, "another")
        cluster.network.drop("broker", 9092)
        started = trio.current_time()
        future = await producer.send("orders", b"second")
        with pytest.raises(SaslAuthenticationFailedError):
            await future
        assert trio.current_time() - started < 5


async def test_time_outs_name_the_cause(autojump_clock: MockClock) -> None:
    """While another broker may accept the credentials, callers wait for it.

    Then the error names the cause.
    """
    cluster = MemoryCluster(autojump_clock)
    options = {"bootstrap_servers": "broker:9092,other:9092", "max_block_ms": 350}
    async with cluster.broker(), cluster.producer("wrong", **options) as producer:
        with pytest.raises((KafkaTimeoutError, SaslAuthenticationFailedError)) as caught:
            await (await producer.send("orders", b"v"))
        assert "rejected the SCRAM" in str(caught.value)


async def test_sessions_are_renewed_in_time(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-368: five requests in flight, ten sessions, one connection, and every record in order."""
    cluster = MemoryCluster(autojump_clock, connections_max_reauth_ms=1000)
    connections = 0

    async def connect(host: str, port: int) -> Any:
        nonlocal connections
        connections += 1
        return await cluster.network.connect(host, port)

    async with cluster.broker(), cluster.producer(linger_ms=0, batch_size=0) as producer:
        producer._core.connect.connect = connect
        futures = []
        for number in range(2000):
            futures.append(await producer.send("orders", b"%d" % number, partition=0))
            await trio.sleep(0.005)
        offsets = [(await future).offset for future in futures]
    assert offsets == list(range(2000))
    assert connections == 1
    assert "closed" not in caplog.text


async def test_a_session_that_ends_because_of_the_password(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The renewal is refused; records fail with the reason."""
    cluster = MemoryCluster(autojump_clock, connections_max_reauth_ms=1000)
    async with cluster.broker() as broker, cluster.producer() as producer:
        await (await producer.send("orders", b"v"))
        broker.users.delete(USER)
        await trio.sleep(2)
        with pytest.raises(SaslAuthenticationFailedError):
            await (await producer.send("orders", b"v"))
    assert "invalid credentials" in caplog.text


class Tokens:
    """Counts how often it is asked."""

    def __init__(self, cluster: MemoryCluster, lifetime_s: float) -> None:
        self.asked = 0
        self._cluster = cluster
        self._lifetime_s = lifetime_s

    async def token(self) -> str:
        self.asked += 1
        return unsecured_token(USER, self._cluster.clock.wall_ms() / 1000, lifetime_s=self._lifetime_s)

    def extensions(self) -> dict[str, str]:
        return {}


async def test_tokens_are_renewed_before_they_expire(autojump_clock: MockClock) -> None:
    """The session is as long as the token, without any setting."""
    cluster = MemoryCluster(autojump_clock)

    class AsyncTokens(Tokens):
        async def extensions(self) -> dict[str, str]:  # type: ignore[override]  # this is a way, too
            return {"traceId": "7"}

    tokens = AsyncTokens(cluster, lifetime_s=10)
    options: Any = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": tokens}
    async with cluster.broker(), cluster.producer(**options) as producer:
        for number in range(60):
            assert (await (await producer.send("orders", b"v"))).offset == number
            await trio.sleep(1)
    assert 6 <= tokens.asked <= 8


async def test_a_token_provider_that_fails(autojump_clock: MockClock) -> None:
    """The record fails with that, at once; the provider's own text, which may hold a secret, is its cause."""
    cluster = MemoryCluster(autojump_clock)

    async def broken() -> str:
        raise OSError("hunter2")

    options: Any = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": broken}
    async with cluster.broker(), cluster.producer(**options) as producer:
        with pytest.raises(SaslError, match=r"token\(\) raised OSError"):
            await (await producer.send("orders", b"v"))


async def test_a_plaintext_client_is_told_what_may_be_wrong(autojump_clock: MockClock) -> None:
    """The broker just closes the connection, as Kafka does; asked once more, it says why."""
    cluster = MemoryCluster(autojump_clock)
    async with (
        cluster.broker(),
        cluster.producer(
            security_protocol="PLAINTEXT",
            sasl_plain_username=None,
            sasl_plain_password=None,
            sasl_mechanism=None,
        ) as producer,
    ):
        with pytest.raises(WrongListenerError, match=r"requires SASL \(PLAIN.*set security_protocol"):
            await (await producer.send("orders", b"v"))


async def test_no_secret_is_shown(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """In no repr, log or error of a run that fails: neither the right password nor a wrong one."""
    caplog.set_level(logging.DEBUG)
    cluster = MemoryCluster(autojump_clock)
    shown: list[str] = []
    async with cluster.broker() as broker:
        for mechanism in MECHANISMS:
            for password in (PASSWORD, "wrong-hunter3"):
                async with cluster.producer(password, sasl_mechanism=mechanism) as producer:
                    core = producer._core
                    try:
                        await (await producer.send("orders", b"v"))
                    except AuthenticationError as error:
                        shown += [str(error), repr(error), repr(error.__cause__), repr(vars(error))]
                    shown += [repr(producer.config), str(producer.config), repr(core.settings)]
                    shown += [repr(vars(core)), repr(vars(core.sender)), producer.last_failure]
                    shown += [repr(link.__dict__) for link in core.sender._links]
                    shown += [repr(core.sender._authenticator)]
        shown += [repr(broker.settings), repr(vars(broker)), repr(broker.users.__dict__)]
    shown.append(caplog.text)
    for text in shown:
        assert PASSWORD not in text
        assert "hunter3" not in text


def test_what_a_producer_pays_for_a_plaintext_broker() -> None:
    """Nothing of TLS or SASL is imported for it."""
    import subprocess
    import sys

    code = (
        "import sys\nfrom splashdam import KafkaProducer, EmbeddedBroker\nimport tempfile\n"
        "with tempfile.TemporaryDirectory() as f, EmbeddedBroker(f) as b:\n"
        "  with KafkaProducer(bootstrap_servers=b.bootstrap_servers) as p:\n"
        "    p.send('t', b'v').get(300)\n"
        "print([m for m in sys.modules if m.startswith('splashdam') and any(w in m for w in ("
        "'tls', 'net.sasl', 'security_prop', 'security.users', 'listener_sec', 'security.authentication'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
