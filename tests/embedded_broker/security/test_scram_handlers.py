"""SCRAM users by API: what Kafka's admin clients send makes users that can log in."""

from __future__ import annotations

import hashlib

import pytest
from support.broker.broker_talk import Talk

from splashdam.embedded_broker.broker import Broker
from splashdam.net.sasl.scram import proves
from splashdam.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from splashdam.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

ONE, TWO = 1, 2


def upsertion(
    name: str = "anna", mechanism: int = ONE, password: bytes = b"hunter2", iterations: int = 4096
) -> ScramCredentialUpsertion:
    digest = "sha512" if mechanism == TWO else "sha256"
    salted = hashlib.pbkdf2_hmac(digest, password, b"salt", min(iterations, 20_000))
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


async def altered(talk: Talk, *changes: ScramCredentialDeletion | ScramCredentialUpsertion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    return {each.user: each.error_code for each in (await talk.ask(request, 0)).results}


async def described(talk: Talk, *names: str) -> dict[str, object]:
    users = [UserName(name=name) for name in names] or None
    answer = await talk.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    return {
        each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


async def test_set_and_delete(talk: Talk, broker: Broker) -> None:
    """One credential after another; the user is gone with the last one."""
    assert await altered(talk, upsertion()) == {"anna": 0}
    assert await altered(talk, upsertion(mechanism=TWO, iterations=8192)) == {"anna": 0}
    credential = broker.users.credentials_of("anna")["SCRAM-SHA-256"]
    assert proves(credential, "SCRAM-SHA-256", "hunter2")
    assert await described(talk) == {"anna": [(ONE, 4096), (TWO, 8192)]}
    assert await altered(talk, ScramCredentialDeletion(name="anna", mechanism=ONE)) == {"anna": 0}
    assert await described(talk, "anna", "ben") == {"anna": [(TWO, 8192)], "ben": 91}
    assert await altered(talk, ScramCredentialDeletion(name="anna", mechanism=TWO)) == {"anna": 0}
    assert broker.users.names() == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (upsertion(iterations=4095), 93),
        (upsertion(iterations=16_385), 93),
        (upsertion(mechanism=3), 33),
        (upsertion(name=""), 93),
        (upsertion(name="\u2168"), 93),
        (ScramCredentialDeletion(name="anna", mechanism=ONE), 91),
        (
            ScramCredentialUpsertion(
                name="anna", mechanism=ONE, iterations=4096, salt=b"", salted_password=b"x"
            ),
            93,
        ),
    ],
)
async def test_what_is_refused(
    talk: Talk, broker: Broker, wrong: ScramCredentialDeletion | ScramCredentialUpsertion, code: int
) -> None:
    """Another user in the same request is taken."""
    assert await altered(talk, wrong, upsertion(name="ben")) == {wrong.name: code, "ben": 0}
    assert broker.users.names() == ["ben"]


async def test_a_user_named_twice(talk: Talk) -> None:
    """92, and nothing is changed."""
    assert await altered(talk, upsertion(), upsertion(mechanism=TWO)) == {"anna": 92}
    assert await described(talk, "anna", "anna") == {"anna": 92}
    assert await described(talk) == {}
