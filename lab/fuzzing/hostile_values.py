"""Texts and numbers for hostile requests: some pass a handler's first checks, others should not."""

from __future__ import annotations

_LONG = 32_767  # the longest string in versions that encode its length in 16 bits

TOPICS = ("t", "t", "u", "compacted", "__consumer_offsets", "__transaction_state")
GROUPS, TRANSACTIONS = ("g1", "g2"), ("tx1", "tx2")

FAMILIES: tuple[tuple[int, ...], ...] = (
    (10, 22, 24, 24, 25, 0, 0, 26, 28, 27, 65, 66),
    (10, 11, 11, 14, 14, 12, 13, 8, 9, 15, 16, 42, 47),
    (68, 68, 68, 69, 8, 9, 11, 16, 42, 47),
    (0, 0, 1, 1, 1, 2, 21, 23, 61, 3),
    (19, 20, 37, 3, 75, 43, 45, 46, 0, 1, 60),
    (32, 33, 44, 44, 74, 19, 0, 71, 72),
    (29, 30, 31, 48, 49, 50, 51, 17, 36, 18),
)
"""Related API keys: transactions, groups of both protocols, logs, topics, configs, access."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IDENTITIES = _words("""
    member_id generation_id member_epoch producer_id producer_epoch topic_id session_id client_instance_id
    subscription_id leader_epoch next_offset base_offset
""")
"""Fields of answers that later requests repeat."""

OPTIONAL = _words("""
    cluster_id group_instance_id instance_id assignments forgotten_topics_data rack_id subscribed_topic_regex
    server_assignor transactional_id_pattern cursor match topics_filter
""")
"""Fields that are mostly left out, because most requests with them fail at once."""


def said_as(name: str) -> str:
    """Return the name that answers use for the value of a request's field."""
    name = name.removeprefix("v3_and_below_").removeprefix("current_")
    return {"generation_id_or_member_epoch": "generation_id", "last_fetched_epoch": "leader_epoch"}.get(
        name, name
    )


_REGEXES = (
    *("t.*", ".*", "(", "(a*)*b", "(a|a)*" * 200, "[" * 5000, "a{1000}{1000}", "\\", "[[:alpha:]]", "t{2,1}"),
    *("(?:" * 3000 + ")" * 3000, "(a?){200}a{200}", "\\p{L}+", "(?i)T", "^(t|u)$", "|" * 9999),
)
CONFIG_VALUES = (
    *(
        "",
        "1",
        "0",
        "-1",
        "100",
        "1000",
        "true",
        "false",
        "1e9",
        "nan",
        "9" * 400,
        "compact",
        "delete",
        "gzip",
    ),
    *(
        "compact,delete",
        "1:2,3:4",
        "*",
        "2147483647",
        "9223372036854775807",
        "x" * _LONG,
        "CreateTime",
        "uncompressed",
    ),
    *("zstd", "LogAppendTime", "60000", "1048576", "0.5", "1.5", "-1.0", "0:1"),
)
HOSTILE_TEXTS = (
    *(
        "",
        ".",
        "..",
        "../../etc",
        "a/b",
        "t\0",
        "ü" * 40,
        "x" * 249,
        "x" * 250,
        "x" * _LONG,
        "{}",
        "%s",
        "\n",
    ),
    *_REGEXES,
    *CONFIG_VALUES,
)

_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate")
FIELD_POOLS: dict[str, tuple[str, ...]] = {
    "regex": _REGEXES,
    "pattern": _REGEXES,
    "instance": ("i1", "i2"),
    "member": ("", "", "m1"),
    "rack": ("r1",),
    "transactional": TRANSACTIONS,
    "assignor": ("uniform", "range", "other"),
    "protocol_type": ("consumer", "consumer", "connect"),
    "protocol_name": ("range", "cooperative-sticky"),
    "types_filter": ("classic", "consumer"),
    "state": ("Stable", "Empty", "Ongoing"),
    "group": GROUPS,
    "topic": TOPICS,
    "host": ("*", "10.0.0.1", "::1"),
    "principal": ("User:anna", "User:ANONYMOUS", "User:*", "Group:g"),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("anna", "fuzz", "10.0.0.1"),
    "software": ("fuzz", "1.0", "a" * 300),
    "mechanism": ("PLAIN", "SCRAM-SHA-256"),
    "match": ("anna", "fuzz"),
    "resource_name": ("t", "u", "0", "1", "", "g1", "kafka-cluster", "tx1", "compacted", "m1"),
    "coordinator_keys": (*GROUPS, *TRANSACTIONS),
}
"""Valid texts by a part of the field's name; the first match counts."""

NAME_POOLS: dict[str, tuple[str, ...]] = {
    "Protocol": ("range", "cooperative-sticky"),
    "Topic": TOPICS,
    "OpData": _QUOTAS,
    "EntryData": _QUOTAS,
    "FindCoordinator": (*GROUPS, *TRANSACTIONS),
    "Scram": ("anna", "bert"),
    "UserName": ("anna", "bert"),
}
"""Texts of other fields, by a part of the structure's name."""
NAMES = (*TOPICS[:4], *GROUPS, "0", "1", "range", "anna", "consumer")

NUMBERS = (0, 0, 0, 1, 1, 2, 3, 10, 1000, -1, -2)
RIGHT_NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, 1, 0),
    "session_timeout_ms": (6000, 10_000),
    "rebalance_timeout_ms": (6000, 10_000),
    "transaction_timeout_ms": (1000, 60_000),
    "timeout_ms": (1000, 0),
    "max_wait_ms": (0, 100),
    "max_bytes": (1 << 20, 1),
    "partition_max_bytes": (1 << 20, 1),
    "num_partitions": (1, 3, -1),
    "replication_factor": (1, 1, 3, -1),
    "iterations": (4096,),
    "partition": (0, 0, 1, 2),
    "partitions": (0, 0, 1, 2),
    "index": (0, 0, 1, 2),
    "partition_index": (0, 0, 1, 2),
    "partition_indexes": (0, 0, 1, 2),
    "broker_ids": (0, 1, 2, 3),
    "replicas": (0, 1, 2, 3),
    "replica_id": (-1, -1, -1, 1, 2),
    "replica_epoch": (-1,),
    "resource_type": (2, 2, 2, 3, 4, 4, 5, 6, 8, 16, 32),
    "resource_type_filter": (1, 2, 3, 4, 5, 6),
    "resource_pattern_type": (3, 4),
    "pattern_type_filter": (1, 2, 3, 4),
    "permission_type": (2, 3, 3, 3),
    "operation": tuple(range(1, 15)),
    "session_id": (0,),
    "session_epoch": (-1, 0, 1, 2),
    "member_epoch": (0, 0, -1, -2, 1),
    "generation_id": (1, 1, -1, 2),
    "leader_epoch": (-1, -1, 0),
    "coordinator_epoch": (0, 1),
    "offset": (0, 1, 2, -1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_767_225_600_000),
    "count": (2, 4),
}
"""Valid numbers by the field's name."""
