"""The keyword options of the producers as a type, so that editors and type checkers know them.

Meaning, defaults and rules are in ``producer_settings.py``; a test compares the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict

from splashdam.client.observing.metrics import MetricsReporter
from splashdam.client.partitioning.partitioners import Partitioner
from splashdam.client.serializers import DataT, KeyT, Serializer, ValueT
from splashdam.model.values import BatchMetadata, Buffer

if TYPE_CHECKING:
    from ssl import SSLContext

SerializerLike: TypeAlias = Serializer[DataT] | Callable[[DataT], Buffer | None] | None
PartitionerLike: TypeAlias = Partitioner | Callable[[bytes | None, list[int], list[int]], int] | str


class ProducerOptions(TypedDict, Generic[KeyT, ValueT], total=False):
    """All of them may be left out. The serializers tell the types of keys and values."""

    bootstrap_servers: str | Sequence[str]
    bootstrap_timeout_ms: float | None
    api_version: tuple[int, ...] | str | None
    client_dns_lookup: Literal["use_all_dns_ips", "default"]
    proxy_url: str | None
    selector: Any
    kafka_client: Any
    client_id: str | None
    key_serializer: SerializerLike[KeyT]
    value_serializer: SerializerLike[ValueT]
    acks: Literal[-1, 0, 1, "all"]
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: float
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    topic_compression: Mapping[str, str | None]
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_block_ms: float
    max_request_size: int
    partitioner: PartitionerLike
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: float
    request_timeout_ms: float
    retries: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    socket_connection_setup_timeout_ms: float
    socket_connection_setup_timeout_max_ms: float
    connections_max_idle_ms: float
    metadata_max_age_ms: float
    metadata_max_idle_ms: float
    metadata_recovery_strategy: Literal["none", "rebootstrap"]
    metadata_recovery_rebootstrap_trigger_ms: float
    allow_auto_create_topics: bool
    receive_message_max_bytes: int
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None
    socket_options: Sequence[tuple[int, int, Any]]
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: SSLContext | None
    ssl_check_hostname: bool
    ssl_cafile: str | PathLike[str] | None
    ssl_certfile: str | PathLike[str] | None
    ssl_keyfile: str | PathLike[str] | None
    ssl_crlfile: str | PathLike[str] | None
    ssl_password: str | None
    ssl_ciphers: str | None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Any
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: Mapping[str, str]
    sasl_oauthbearer_cafile: str | PathLike[str] | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_name: Any
    metrics_enabled: bool
    metrics_num_samples: int
    metrics_sample_window_ms: float
    metric_reporters: Sequence[MetricsReporter | type[MetricsReporter]]
    interceptors: Sequence[Any]
    on_batch: Callable[[BatchMetadata], object] | None
    enable_metrics_push: bool
    console_port: int | None
    exit_timeout_ms: float
