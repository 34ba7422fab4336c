"""The parts of a producer, made from its settings."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import compression, topic_compression
from splashdam.net.connect import Connect, TcpConnect
from splashdam.net.connection.connection import Authenticator
from splashdam.sender.metadata import Metadata
from splashdam.sender.settings import SenderSettings

if TYPE_CHECKING:
    from splashdam.client.observing.batch_listener import BatchListener

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
    from splashdam.client.running.security import tls_connect

    return tls_connect(settings, connect, settings.socket_connection_setup_timeout_max_ms)


def authenticator(settings: ProducerSettings) -> Authenticator | None:
    """What shows brokers who we are, where they want to know.

    Raises:
        KafkaConfigurationError: the mechanism needs an option that is missing.
    """
    if not settings.uses_sasl:
        return None
    from splashdam.client.running.security import make_authenticator

    return make_authenticator(settings)
