"""SaslHandshake (key 17), versions 0 and 1: selects the SASL mechanism.

After version 0 the SASL messages follow as bare frames, after version 1 inside SaslAuthenticate.
"""

from __future__ import annotations

from splashdam.wire.fields import array, int16, string
from splashdam.wire.message import Request, Response


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """``mechanisms`` are those that the broker offers; error 33 if the requested one is not among them."""

    error_code: int = int16()
    mechanisms: list[str] = array("string")
