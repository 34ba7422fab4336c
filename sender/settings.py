"""What a sender has to be told. What applications see is in ``client/settings/producer_settings.py``."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True, eq=False, repr=False)  # what nobody uses takes time to make, at import
class SenderSettings:
    """Settings of one sender; names, meanings and defaults are Kafka's. Times in ms, sizes in bytes.

    Attributes:
        bootstrap: hosts and ports where the cluster is looked for first.
        client_id: sent in each request's header.
        acks: who has a batch when it counts as delivered: -1 all in-sync replicas, 1 the leader, 0 nobody.
        enable_idempotence: number the batches, so that a retry never writes twice or out of order.
        max_in_flight_requests_per_connection: requests a broker has at one time before it answered. With 1
            and without idempotence, a partition waits for each answer, which keeps its order.
        request_timeout_ms: how long an answer may take before the connection is given up.
        retries: how often a batch is sent again; ``delivery_timeout_ms`` is the better limit.
        retry_backoff_ms: wait before asking again for metadata or a producer id; doubles up to the maximum.
        retry_backoff_max_ms: longest such wait.
        reconnect_backoff_ms: wait before a broken connection is made again; doubles up to the maximum.
        reconnect_backoff_max_ms: longest such wait.
        connection_setup_timeout_ms: how long connecting and agreeing on versions may take, each; doubles with
            every attempt that failed, up to the maximum.
        connection_setup_timeout_max_ms: longest such time.
        connections_max_idle_ms: a connection without traffic is closed after this time.
        receive_message_max_bytes: most bytes of an answer.
        metadata_max_age_ms: the metadata is asked for again after this time.
        metadata_max_idle_ms: a topic that was not used for this time is forgotten.
        metadata_recovery_strategy: ``rebootstrap``: the cluster is looked for at ``bootstrap`` again when its
            brokers do not answer; ``none``: it is not.
        metadata_recovery_rebootstrap_trigger_ms: with ``rebootstrap``, all that is known of the brokers is
            forgotten after so long without an answer to a question for metadata.
        max_request_size: most bytes of batches in one request; a larger batch goes alone.
        allow_auto_create_topics: whether the broker may create a topic that is sent to.
        delivery_timeout_ms: when a batch fails at the latest, from its creation over all attempts.
        transactional_id: name under which transactions are written, None for none.
        transaction_timeout_ms: the coordinator aborts a transaction that is open for so long.
        write_patience_ms: how long the sender may keep its loop until a socket has room for a request;
            0 where the loop is not its own, where it does not look out for an answer either.
        metrics_num_samples: windows that rates and averages look back on, the present one included.
        metrics_sample_window_ms: how long one is.
        software_name: who we are, for the broker's metrics (KIP-511).
        software_version: likewise.
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
    software_version: str = "0.1.0"
