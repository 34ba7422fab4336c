"""Logins of the connections that readers and admins share, for the first time and again (KIP-368)."""

from __future__ import annotations

import trio
from support.security.security_kit import PASSWORD, USER, MemoryCluster
from trio.testing import MockClock

from splashdam.model.secrets import Secret
from splashdam.net.cluster.cluster_client import open_cluster_client
from splashdam.net.sasl.exchange import SaslAuthenticator
from splashdam.net.sasl.mechanisms import Credentials
from splashdam.testing.faults.faults import Faults


async def test_a_call_that_is_cancelled_in_a_second_login_leaves_no_half_of_it(
    autojump_clock: MockClock,
) -> None:
    """The next one began another exchange in the middle of it: refused, and taken for a wrong listener."""
    cluster = MemoryCluster(autojump_clock, connections_max_reauth_ms=10_000)
    login = SaslAuthenticator("SCRAM-SHA-256", Credentials("", username=USER, password=Secret(PASSWORD)))
    async with (
        cluster.broker() as broker,
        open_cluster_client(
            [("broker", 9092)], connect=cluster.network.connect, clock=cluster.clock, authenticator=login
        ) as client,
    ):
        await client.cluster()
        await trio.sleep(9.6)
        Faults(broker.interception).sasl_authenticate(delay_ms=100)
        with trio.move_on_after(0.05) as impatient:
            await client.cluster()
        assert impatient.cancelled_caught
        await trio.sleep(0.2)
        assert (await client.cluster()).nodes
