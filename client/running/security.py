"""TLS context and SASL credentials from a producer's options. Imported only if they are used."""

from __future__ import annotations

import ssl

import attrs

from splashdam.client.settings.security_settings import SecuritySettings
from splashdam.model.errors import KafkaConfigurationError, message_of
from splashdam.model.secrets import Secret
from splashdam.net.connect import Connect
from splashdam.net.sasl.exchange import SaslAuthenticator
from splashdam.net.sasl.mechanisms import MECHANISMS, Credentials
from splashdam.net.sasl.oidc import OidcTokenProvider
from splashdam.net.tls.context import TlsFiles, client_context
from splashdam.net.tls.tls import TlsConnect

_NAMES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers")


def tls_connect(settings: SecuritySettings, connect: Connect, timeout_ms: float) -> TlsConnect:
    """Wrap ``connect`` in TLS.

    Raises:
        KafkaConfigurationError: a certificate or key file is missing or invalid.
    """
    return TlsConnect(connect, tls_context(settings), timeout_ms=timeout_ms)


def make_authenticator(settings: SecuritySettings) -> SaslAuthenticator:
    """Make the SASL authenticator.

    Raises:
        KafkaConfigurationError: an option that the mechanism needs is missing.
    """
    name = str(settings.sasl_mechanism)
    if settings.sasl_oauthbearer_token_endpoint_url is not None and name == "OAUTHBEARER":
        settings = attrs.evolve(settings, sasl_oauth_token_provider=_token_provider(settings))
    mechanism = MECHANISMS[name]
    missing = [option for option in mechanism.needs if not getattr(settings, option)]
    if len(missing) > 1:
        raise KafkaConfigurationError(
            f"{' and '.join(missing)} are missing: sasl_mechanism={name!r} needs them"
        )
    if missing:
        instead = "; or sasl_oauthbearer_token_endpoint_url" if name == "OAUTHBEARER" else ""
        raise KafkaConfigurationError(f"{missing[0]} is missing: sasl_mechanism={name!r} needs it{instead}")
    mechanism.check_installed()
    password = settings.sasl_plain_password
    credentials = Credentials(
        "",
        username=settings.sasl_plain_username,
        password=None if password is None else Secret(password),
        token_provider=settings.sasl_oauth_token_provider,
        service=settings.sasl_kerberos_name or settings.sasl_kerberos_service_name,
        service_host=settings.sasl_kerberos_domain_name,
    )
    return SaslAuthenticator(name, credentials)


def _token_provider(settings: SecuritySettings) -> OidcTokenProvider:
    for option in ("sasl_oauthbearer_client_id", "sasl_oauthbearer_client_secret"):
        if not getattr(settings, option):
            raise KafkaConfigurationError(
                f"{option} is missing: sasl_oauthbearer_token_endpoint_url needs it"
            )
    try:
        return OidcTokenProvider(
            str(settings.sasl_oauthbearer_token_endpoint_url),
            str(settings.sasl_oauthbearer_client_id),
            settings.sasl_oauthbearer_client_secret or "",
            scope=settings.sasl_oauthbearer_scope,
            extensions=settings.sasl_oauthbearer_extensions,
            cafile=settings.sasl_oauthbearer_cafile,
            header_urlencode=settings.sasl_oauthbearer_header_urlencode,
        )
    except KafkaConfigurationError as error:
        raise KafkaConfigurationError(f"sasl_oauthbearer_{message_of(error)}") from None


def tls_context(settings: SecuritySettings) -> ssl.SSLContext:
    """Return the given context, or make one from the files.

    Raises:
        KafkaConfigurationError: as `tls_connect`.
    """
    if settings.ssl_context is not None:
        context: ssl.SSLContext = settings.ssl_context
        return context
    files = TlsFiles(
        names=_NAMES,
        cafile=settings.ssl_cafile,
        certfile=settings.ssl_certfile,
        keyfile=settings.ssl_keyfile,
        crlfile=settings.ssl_crlfile,
        password=None if settings.ssl_password is None else Secret(settings.ssl_password),
        ciphers=settings.ssl_ciphers,
    )
    return client_context(files, check_hostname=settings.ssl_check_hostname)
