"""AlterUserScramCredentials (key 51), version 0: sets and deletes SCRAM credentials."""

from __future__ import annotations

from splashdam.wire.fields import array, binary, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """A credential to set; the password itself is not sent."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], key=51, versions="0", flexible="0+"
):
    """What to delete and what to set."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """Whether the user's credentials are changed."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+", throttles="0+"):
    """One answer per user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
