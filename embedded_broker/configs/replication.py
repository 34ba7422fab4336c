"""How a broker replicates; names, defaults and units are Kafka's."""

from __future__ import annotations

import attrs

from splashdam.model.options import MAX_INT, one_of, option, whole_number

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


@attrs.frozen(kw_only=True)
class ReplicationSettings:
    """How followers fetch from their leaders, and who leads."""

    replica_lag_time_max_ms: int = option(
        30_000,
        check=whole_number(1),
        doc="Milliseconds a follower may lag behind before it is not in sync any more",
    )
    replica_fetch_wait_max_ms: int = option(
        500,
        check=whole_number(0, MAX_INT),
        doc="Milliseconds a leader may let a follower's fetch wait for data",
    )
    replica_fetch_min_bytes: int = option(
        1, check=whole_number(0, MAX_INT), doc="Bytes that a leader waits for before it answers a follower"
    )
    replica_fetch_max_bytes: int = option(
        1_048_576,
        check=whole_number(0, MAX_INT),
        doc="Most bytes of one partition in one answer to a follower; a larger batch comes whole",
    )
    replica_fetch_response_max_bytes: int = option(
        10_485_760,
        check=whole_number(0, MAX_INT),
        doc="Most bytes of one answer to a follower; a larger first batch comes whole",
    )
    replica_fetch_backoff_ms: int = option(
        1_000, check=whole_number(0, MAX_INT), doc="Milliseconds a follower rests after a failure"
    )
    replica_socket_timeout_ms: int = option(
        30_000, check=whole_number(1, MAX_INT), doc="Milliseconds a leader may take to answer a follower"
    )
    replica_selector_class: str = option(
        "",
        check=one_of("", _LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        notes={"kind": "name"},
        doc="Who tells consumers which replica to read from: empty or LeaderSelector, the leader; "
        f"{RACK_AWARE_SELECTOR}: one in sync in the rack that the consumer names as its own (client.rack)",
    )
    auto_leader_rebalance_enable: bool = option(
        True, doc="Whether preferred leaders that are in sync are given their partitions back in time"
    )
    leader_imbalance_check_interval_seconds: int = option(
        300, check=whole_number(1, MAX_INT), doc="How often that is looked at"
    )
