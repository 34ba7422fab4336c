"""Settings of a sender. The options of applications are in ``client/settings/producer_settings.py``."""

from __future__ import annotations

import attrs

from splashdam.model.version import VERSION


@attrs.frozen(kw_only=True, eq=False, repr=False)  # unused methods would cost import time
class SenderSettings:
    """Settings of one sender; names, meanings and defaults are Kafka's. Times in ms, sizes in bytes.

    Attributes:
        bootstrap: hosts and ports of the brokers to connect to first.
        client_id: sent in each request's header.
        acks: acknowledgements that a batch needs: -1 all in-sync replicas, 1 the partition leader, 0 none.
        enable_idempotence: number the batches, so that a retry neither duplicates nor reorders records.
        max_in_flight_requests_per_connection: unanswered requests per broker. With 1 and without
            idempotence, a partition waits for each response, which keeps its order.
        request_timeout_ms: how long a response may take before the connection is closed.
        retries: how often a batch is retried; ``delivery_timeout_ms`` is the better limit.
        retry_backoff_ms: wait before the next metadata or producer id request; doubles up to the maximum.
        retry_backoff_max_ms: maximum of that wait.
        reconnect_backoff_ms: wait before the next connection attempt; doubles up to the maximum.
        reconnect_backoff_max_ms: maximum of that wait.
        connection_setup_timeout_ms: limit for connecting, and for the version handshake; doubles with every
            failed attempt, up to the maximum.
        connection_setup_timeout_max_ms: maximum of that limit.
        connections_max_idle_ms: a connection without traffic is closed after this time.
        receive_message_max_bytes: maximum size of a response.
        metadata_max_age_ms: metadata are refreshed after this time.
        metadata_max_idle_ms: a topic that was not used for this time is dropped from the metadata.
        metadata_recovery_strategy: ``rebootstrap``: use ``bootstrap`` again when no broker answers; ``none``:
            do not.
        metadata_recovery_rebootstrap_trigger_ms: with ``rebootstrap``, drop the known brokers after so long
            without a metadata response.
        max_request_size: maximum size of the batches in one request; a larger batch goes alone.
        allow_auto_create_topics: whether the broker may create a topic that is sent to.
        delivery_timeout_ms: limit from a batch's creation to its acknowledgement, retries included.
        transactional_id: the transactional id, None for none.
        transaction_timeout_ms: the coordinator aborts a transaction that is open for longer.
        write_patience_ms: how long the sender may block its loop until a socket has room for a request; 0 if
            it shares the loop. Then it does not read responses eagerly either.
        metrics_num_samples: windows over which rates and averages are computed, the current one included.
        metrics_sample_window_ms: length of a window.
        software_name: client name for the broker's metrics (KIP-511).
        software_version: client version, likewise.
    """

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "splashdam-producer"
    acks: int = -1
    enable_idempotence: bool = True
    max_in_flight_requests_per_connection: int = 5
    request_timeout_ms: float = 30_000
    retries: float = 2**31 - 1
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1_000
    connection_setup_timeout_ms: float = 10_000
    connection_setup_timeout_max_ms: float = 30_000
    connections_max_idle_ms: float = 540_000
    receive_message_max_bytes: int = 100_000_000
    metadata_max_age_ms: float = 300_000
    metadata_max_idle_ms: float = 300_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: float = 300_000
    max_request_size: int = 1_048_576
    allow_auto_create_topics: bool = True
    delivery_timeout_ms: float = 120_000
    transactional_id: str | None = None
    transaction_timeout_ms: float = 60_000
    write_patience_ms: float = 0.0
    metrics_num_samples: int = 2
    metrics_sample_window_ms: float = 30_000
    software_name: str = "splashdam"
    software_version: str = VERSION
