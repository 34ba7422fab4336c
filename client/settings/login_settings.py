"""The options of logins that somebody else vouches for: a token endpoint (OIDC), or Kerberos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from splashdam.model.options import one_of, option
from splashdam.model.secrets import Secret, secret_or_none


def text_or_none(value: Any) -> str | None:
    """A check that the value is a text, or None."""
    return None if value is None or isinstance(value, str) else f"must be str, not {type(value).__name__}"


def as_path(value: Any) -> Any:
    """A path as the text that it is."""
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def parse_extensions(text: str) -> dict[str, str]:
    """``name=value,…``, as librdkafka has it.

    Raises:
        ValueError: it is not that.
    """
    pairs = [part.partition("=") for part in filter(None, map(str.strip, text.split(",")))]
    if not all(mark for _, mark, _ in pairs):
        raise ValueError("is not name=value,name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _extensions(value: Any) -> str | None:
    fine = isinstance(value, Mapping) and all(
        isinstance(part, str) for pair in value.items() for part in pair
    )
    return None if fine else "must be a dict of texts"


@attrs.frozen(kw_only=True, eq=False, init=False, repr=False)  # a part only
class LoginSettings:
    """OIDC and Kerberos; part of ``SecuritySettings``."""

    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        check=text_or_none,
        parse=str,
        doc="For OAUTHBEARER: where tokens are had for sasl_oauthbearer_client_id and its secret (OIDC)",
    )
    sasl_oauthbearer_client_id: str | None = option(
        None, check=text_or_none, parse=str, doc="Who we are at the token endpoint"
    )
    sasl_oauthbearer_client_secret: str | None = option(
        None,
        is_secret=True,
        convert=secret_or_none,
        check=text_or_none,
        parse=Secret,
        doc="What proves at the token endpoint who we are",
    )
    sasl_oauthbearer_scope: str | None = option(
        None, check=text_or_none, parse=str, doc="What the token should be for, if the endpoint wants to know"
    )
    sasl_oauthbearer_extensions: dict[str, str] = option(
        {},
        check=_extensions,
        parse=parse_extensions,
        doc="Told to the brokers beside the token (KIP-255); in properties name=value,name=value",
    )
    sasl_oauthbearer_cafile: str | None = option(
        None,
        convert=as_path,
        check=text_or_none,
        parse=str,
        doc="CAs of the token endpoint, a path, or the PEM text itself; default: those of this machine",
    )
    sasl_oauthbearer_header_urlencode: bool = option(
        False,
        check=one_of(True, False),
        doc="Whether id and secret are form-encoded in the header, as some token endpoints want (RFC 6749)",
    )
    sasl_kerberos_service_name: str = option(
        "kafka", doc="For GSSAPI: the brokers' service, the first part of their principals"
    )
    sasl_kerberos_domain_name: str | None = option(
        None,
        check=text_or_none,
        parse=str,
        doc="For GSSAPI: the host in the brokers' principals; default: the broker's host as we know it",
    )
    sasl_kerberos_name: Any = option(
        None,
        parse=str,
        doc="For GSSAPI: the brokers' principal as a whole, as text or gssapi.Name; default: service@host",
    )
