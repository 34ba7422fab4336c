"""The parts of a producer, made from its settings.

TLS contexts and credentials, made of a producer's options. Imported only where they are asked for.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import compression, topic_compression
from splashdam.client.settings.security_settings import SecuritySettings
from splashdam.model.errors import KafkaConfigurationError, message_of
from splashdam.model.secrets import Secret
from splashdam.net.connect import Connect, TcpConnect
from splashdam.net.connection.authentication import Authenticator
from splashdam.net.sasl.exchange import SaslAuthenticator
from splashdam.net.sasl.mechanisms import MECHANISMS, Credentials
from splashdam.net.sasl.oidc import OidcTokenProvider
from splashdam.net.tls.context import TlsFiles, client_context
from splashdam.net.tls.tls import TlsConnect
from splashdam.sender.metadata import Metadata
from splashdam.sender.settings import SenderSettings

if TYPE_CHECKING:
    from splashdam.client.observing.batch_listener import BatchListener

_NAMES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers")


def tls_connect(settings: SecuritySettings, connect: Connect, timeout_ms: float) -> TlsConnect:
    """Connections inside TLS.

    Raises:
        KafkaConfigurationError: a file is missing, or is not what it should be.
    """
    return TlsConnect(connect, _context(settings), timeout_ms=timeout_ms)


def make_authenticator(settings: SecuritySettings) -> Authenticator:
    """Shows brokers who we are.

    Raises:
        KafkaConfigurationError: the mechanism needs an option that is missing.
    """
    name = str(settings.sasl_mechanism)
    if settings.sasl_oauthbearer_token_endpoint_url is not None and name == "OAUTHBEARER":
        settings = attrs.evolve(settings, sasl_oauth_token_provider=_token_provider(settings))
    mechanism = MECHANISMS[name]
    for option in mechanism.needs:
        if not getattr(settings, option):
            instead = "; or sasl_oauthbearer_token_endpoint_url" if name == "OAUTHBEARER" else ""
            raise KafkaConfigurationError(f"{option} is missing: sasl_mechanism={name!r} needs it{instead}")
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


def _context(settings: SecuritySettings) -> ssl.SSLContext:
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


WRITE_PATIENCE_MS = 4.0
"""A request of some MB has gone by then where broker and network are fast; others go on in a task."""


def make_accumulator(settings: ProducerSettings) -> RecordAccumulator:
    """Batches and memory as ``settings`` want them."""
    return RecordAccumulator(
        batch_bytes=settings.batch_size,
        linger_ms=settings.linger_ms,
        buffer_memory=settings.buffer_memory,
        compression=compression(settings),
        topic_compression=topic_compression(settings),
        availability_timeout_ms=settings.partitioner_availability_timeout_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        random=random.random,
    )


def make_metadata(settings: ProducerSettings) -> Metadata:
    """An empty picture of the cluster."""
    return Metadata(
        max_age_ms=settings.metadata_max_age_ms,
        max_idle_ms=settings.metadata_max_idle_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        random=random.random,
    )


def make_tcp_connect(settings: ProducerSettings) -> Connect:
    """Connections by TCP, through a proxy where one is wanted.

    Raises:
        KafkaConfigurationError: the proxy's package is not installed, or its URL is not complete.
    """
    connect = TcpConnect(
        timeout_ms=settings.socket_connection_setup_timeout_max_ms,  # the link gives up before
        send_buffer_bytes=settings.send_buffer_bytes,
        receive_buffer_bytes=settings.receive_buffer_bytes,
    )
    if settings.proxy_url is None:
        return connect
    from splashdam.net.proxy import ProxyConnect

    return ProxyConnect(settings.proxy_url, connect)


def sender_settings(
    settings: ProducerSettings, addresses: Iterable[tuple[str, int]], *, own_loop: bool
) -> SenderSettings:
    """What the sender has to be told."""
    return SenderSettings(
        bootstrap=tuple(addresses),
        client_id=str(settings.client_id),
        acks=int(settings.acks),
        enable_idempotence=settings.enable_idempotence,
        max_in_flight_requests_per_connection=settings.max_in_flight_requests_per_connection,
        request_timeout_ms=settings.request_timeout_ms,
        retries=settings.retries,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        reconnect_backoff_ms=settings.reconnect_backoff_ms,
        reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        receive_message_max_bytes=settings.receive_message_max_bytes,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        metadata_max_idle_ms=settings.metadata_max_idle_ms,
        metadata_recovery_strategy=settings.metadata_recovery_strategy,
        metadata_recovery_rebootstrap_trigger_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
        max_request_size=settings.max_request_size,
        allow_auto_create_topics=settings.allow_auto_create_topics,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        transactional_id=settings.transactional_id,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        write_patience_ms=WRITE_PATIENCE_MS if own_loop else 0.0,
        metrics_num_samples=settings.metrics_num_samples,
        metrics_sample_window_ms=settings.metrics_sample_window_ms,
    )


def batch_listener(settings: ProducerSettings) -> BatchListener | None:
    """Who is told of batches, if anybody wants to be."""
    if settings.on_batch is None:
        return None
    from splashdam.client.observing.batch_listener import BatchListener

    return BatchListener(settings.on_batch)


def secured(settings: ProducerSettings, connect: Connect) -> Connect:
    """``connect``, inside TLS where that is asked for.

    Raises:
        KafkaConfigurationError: a file is missing, or is not what it should be.
    """
    if not settings.uses_tls:
        return connect
    from splashdam.client.running.wiring import tls_connect

    return tls_connect(settings, connect, settings.socket_connection_setup_timeout_max_ms)


def authenticator(settings: ProducerSettings) -> Authenticator | None:
    """What shows brokers who we are, where they want to know.

    Raises:
        KafkaConfigurationError: the mechanism needs an option that is missing.
    """
    if not settings.uses_sasl:
        return None
    from splashdam.client.running.wiring import make_authenticator

    return make_authenticator(settings)
