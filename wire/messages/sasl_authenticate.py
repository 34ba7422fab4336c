"""SaslAuthenticate (key 36), versions 0 to 2: one message of a SASL exchange."""

from __future__ import annotations

from splashdam.wire.fields import binary, int16, int64, string
from splashdam.wire.message import Request, Response


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary()

    def __repr__(self) -> str:
        return f"{self.NAME}(…)"  # it may be a password


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """``session_lifetime_ms`` 0 means no limit (KIP-368)."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)

    def __repr__(self) -> str:
        return f"{self.NAME}(error_code={self.error_code}, error_message={self.error_message!r}, …)"
