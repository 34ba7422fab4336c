"""SaslHandshake (key 17), versions 0 and 1: which SASL mechanism will be spoken.

After version 0 the tokens follow as bare frames, after version 1 inside SaslAuthenticate.
"""

from __future__ import annotations

from splashdam.wire.fields import array, int16, string
from splashdam.wire.message import Request, Response


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], key=17, versions="0-1"):
    """The client's choice."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """Error 33 where the broker does not offer the mechanism; ``mechanisms`` are those it does."""

    error_code: int = int16()
    mechanisms: list[str] = array("string")
