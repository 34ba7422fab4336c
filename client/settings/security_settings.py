"""The security options: TLS, SASL, and OAUTHBEARER tokens.

Python names are kafka-python's. What they are made into is in ``running/security.py``, imported only where
``security_protocol`` asks for it; Java's names for files and logins are in ``security_properties.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import one_of, option
from splashdam.model.secrets import Secret, secret_or_none

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM_NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""A test compares them with the table in ``net/sasl``, which is not imported for them."""

_FILE = "a path, or the PEM text itself"


def text_or_none(value: Any) -> str | None:
    """A check that the value is a text, or None."""
    return None if value is None or isinstance(value, str) else f"must be str, not {type(value).__name__}"


def as_path(value: Any) -> Any:
    """Return a path as text."""
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def parse_extensions(text: str) -> dict[str, str]:
    """Parse ``name=value,…``, which is librdkafka's form.

    Raises:
        ValueError: the text has another form.
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


def _secret_key(value: Any) -> Any:
    """A key that was given as text and not as a path is a secret."""
    return Secret(value) if isinstance(value, str) and "PRIVATE KEY" in value else value


def _context_or_none(value: Any) -> str | None:
    return None if value is None or hasattr(value, "wrap_bio") else "must be an ssl.SSLContext"


def _provider_or_none(value: Any) -> str | None:
    is_one = value is None or callable(value) or callable(getattr(value, "token", None))
    return None if is_one else "must be callable, or an object with a method token()"


def protocol_named(value: Any) -> Any:
    """Return the protocol that ``value`` names in whatever case; what names none is returned as it is."""
    return value.upper() if isinstance(value, str) and value.upper() in PROTOCOLS else value


@attrs.frozen(kw_only=True, eq=False, repr=False)  # unused methods would cost import time
class SecuritySettings:
    """TLS, and SASL with its logins.

    Used by itself by clients that send nothing; the options of producers are these and their own.
    """

    security_protocol: str = option(
        "PLAINTEXT",
        convert=protocol_named,
        check=one_of(*PROTOCOLS),
        doc="Protocol to brokers: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT or SASL_SSL",
    )
    ssl_context: Any = option(
        None, check=_context_or_none, doc="An ssl.SSLContext instead of the other ssl_ options"
    )
    ssl_check_hostname: bool = option(
        True,
        check=one_of(True, False),
        doc="Whether a broker's certificate must match its host name",
    )
    ssl_cafile: str | None = option(
        None,
        convert=as_path,
        check=text_or_none,
        doc=f"Trusted CA certificates, {_FILE}; default: those of the system",
    )
    ssl_certfile: str | None = option(
        None,
        is_secret=True,
        convert=lambda value: _secret_key(as_path(value)),
        check=text_or_none,
        doc=f"Client certificate with its chain, for mutual TLS: {_FILE}",
    )
    ssl_keyfile: str | None = option(
        None,
        is_secret=True,
        convert=lambda value: _secret_key(as_path(value)),
        check=text_or_none,
        doc=f"Private key of ssl_certfile, if that does not contain it: {_FILE}",
    )
    ssl_crlfile: str | None = option(
        None, convert=as_path, check=text_or_none, doc=f"Certificate revocation list, {_FILE}"
    )
    ssl_password: str | None = option(
        None,
        is_secret=True,
        convert=secret_or_none,
        check=text_or_none,
        parse=Secret,
        doc="Password of the private key",
    )
    ssl_ciphers: str | None = option(
        None, check=text_or_none, doc="Ciphers for TLS 1.2, by their OpenSSL names, separated by colons"
    )
    sasl_mechanism: str | None = option(
        None,
        check=one_of(None, *MECHANISM_NAMES),
        doc="SASL mechanism",
    )
    sasl_plain_username: str | None = option(None, check=text_or_none, doc="User name for PLAIN and SCRAM")
    sasl_plain_password: str | None = option(
        None,
        is_secret=True,
        convert=secret_or_none,
        check=text_or_none,
        parse=Secret,
        doc="Password for PLAIN and SCRAM",
    )
    sasl_oauth_token_provider: Any = option(
        None,
        check=_provider_or_none,
        doc="For OAUTHBEARER: an object with token(), and maybe extensions(), or a callable",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        check=text_or_none,
        parse=str,
        doc="For OAUTHBEARER: URL of the token endpoint (OIDC, client credentials grant)",
    )
    sasl_oauthbearer_client_id: str | None = option(
        None, check=text_or_none, parse=str, doc="Client id for the token endpoint"
    )
    sasl_oauthbearer_client_secret: str | None = option(
        None,
        is_secret=True,
        convert=secret_or_none,
        check=text_or_none,
        parse=Secret,
        doc="Client secret for the token endpoint",
    )
    sasl_oauthbearer_scope: str | None = option(
        None, check=text_or_none, parse=str, doc="Scope of the token, if the endpoint asks for one"
    )
    sasl_oauthbearer_extensions: dict[str, str] = option(
        {},
        check=_extensions,
        parse=parse_extensions,
        doc="Extensions that go to the brokers with the token (KIP-255); in properties name=value,name=value",
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

    @property
    def uses_tls(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate with SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def is_default(name: str, value: Any) -> bool:
    """Whether the value of a security option is None or equals the default."""
    fields = attrs.fields_dict(SecuritySettings)
    default: Any = fields[name].default if name in fields else None
    return value is None or value == (default.factory() if hasattr(default, "factory") else default)


def has_no_effect(name: str, protocol: str) -> bool:
    """Whether an option is for TLS or for SASL, and ``protocol`` does not use that."""
    return name != "ssl_check_hostname" and _family(name) in ("SSL", "SASL") and _family(name) not in protocol


def _family(name: str) -> str:
    """Return the first word of an option, as protocols have it in their names."""
    return name.partition("_")[0].upper()


def check_security(settings: SecuritySettings, options: Mapping[str, Any], *, embedded: bool) -> None:
    """Raise for contradictory options, and for security options without effect.

    Args:
        settings: as a whole.
        options: what was given.
        embedded: the broker is in this process.

    Raises:
        KafkaConfigurationError: an option has no effect with this protocol, or one is missing.
    """
    protocol = settings.security_protocol
    if embedded and protocol != "PLAINTEXT":
        raise KafkaConfigurationError(
            f"security_protocol={protocol!r}: an embedded broker is reached inside this process, in PLAINTEXT"
        )
    given = [name for name, value in options.items() if not is_default(name, value)]
    for name in given:
        if has_no_effect(name, protocol):
            raise KafkaConfigurationError(
                f"{name} has no effect with security_protocol={protocol!r}:"
                f" set one with {_family(name)} in it"
            )
    if settings.ssl_context is not None:
        others = [name for name in given if name.startswith("ssl_") and name != "ssl_context"]
        if others:
            raise KafkaConfigurationError(f"ssl_context and {others[0]} exclude each other")
    if settings.sasl_oauth_token_provider is not None:
        others = [name for name in given if name.startswith("sasl_oauthbearer_")]
        if others:
            raise KafkaConfigurationError(f"sasl_oauth_token_provider and {others[0]} exclude each other")
    if settings.uses_sasl and settings.sasl_mechanism is None:
        raise KafkaConfigurationError(
            f"sasl_mechanism is missing: security_protocol={protocol!r} needs one of"
            f" {', '.join(MECHANISM_NAMES)}"
        )
