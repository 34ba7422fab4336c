"""Kafka's names for transactions."""

from __future__ import annotations

import attrs

from splashdam.model.options import MAX_INT, option, whole_number
from splashdam.storage.settings import DAY_MS, HOUR_MS, MINUTE_MS


@attrs.frozen(kw_only=True)
class TransactionSettings:
    """Transactions, and the topic that keeps them."""

    transaction_state_log_num_partitions: int = option(
        50, doc="Partitions of __transaction_state when it is made.", check=whole_number(1, MAX_INT)
    )
    transaction_state_log_replication_factor: int = option(
        3,
        check=whole_number(1, 32_767),
        doc="Brokers that keep each partition of __transaction_state, or as many as there are",
    )
    transaction_state_log_min_isr: int = option(
        2,
        check=whole_number(1, MAX_INT),
        doc="min.insync.replicas of __transaction_state when it is made, or as many as keep it",
    )
    transaction_state_log_segment_bytes: int = option(
        104_857_600,
        doc="segment.bytes of __transaction_state when it is made.",
        check=whole_number(14, MAX_INT),
    )
    transaction_max_timeout_ms: int = option(
        15 * MINUTE_MS,
        doc="Largest transaction timeout in milliseconds that a producer may ask for.",
        check=whole_number(1, MAX_INT),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        10_000,
        doc="Milliseconds between two looks for transactions that are open for longer than their timeout.",
        check=whole_number(1, MAX_INT),
    )
    transactional_id_expiration_ms: int = option(
        7 * DAY_MS,
        doc="Milliseconds without use after which a transactional id is forgotten.",
        check=whole_number(1, MAX_INT),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        HOUR_MS,
        doc="Milliseconds between two looks for transactional ids to forget.",
        check=whole_number(1, MAX_INT),
    )
    transaction_partition_verification_enable: bool = option(
        True,
        doc="Whether a transactional batch is refused where its partition was not added to the transaction.",
    )
    transaction_version: int = option(
        2,
        doc="Level of the feature transaction.version: 0 none, 1 tagged fields in __transaction_state, 2 an "
        "epoch for each transaction (KIP-890). Kafka sets it with kafka-features.",
        check=whole_number(0, 2),
    )
