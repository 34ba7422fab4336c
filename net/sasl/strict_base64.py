"""Base64 as its writer wrote it: one text for the same bytes, nothing before, between or behind it."""

from __future__ import annotations

import base64


def decoded(text: str) -> bytes | None:
    """The bytes; None unless the text is exactly how they are written."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return data if base64.b64encode(data).decode() == text else None


def decoded_url(text: str) -> bytes | None:
    """As ``decoded``, for the alphabet of URLs without padding, which JSON Web Tokens have."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return data if base64.urlsafe_b64encode(data).decode().rstrip("=") == text else None
