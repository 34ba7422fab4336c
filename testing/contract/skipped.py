"""Requests of the Kafka protocol that the embedded broker does not serve, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping

from splashdam.wire.registry import API_KEYS

_ZOOKEEPER = "between brokers of the ZooKeeper era; Kafka 4.0 has removed it"
_TOKENS = (
    "delegation tokens: sent only by programs that want one; SCRAM and OAUTHBEARER serve the same purpose"
)
_RAFT = "of the controllers' quorum: the brokers of an embedded cluster share one controller in their process"
_NODES = "between brokers and controllers: an embedded cluster calls its controller directly"
_SHARES = "share groups (KIP-932): queues are another kind of group; consumers that ask for them are refused"
_STREAMS = "streams groups (KIP-1071): Kafka Streams uses the classic protocol unless told otherwise"

SKIPPED: Mapping[int, tuple[str, str]] = {
    4: ("LeaderAndIsr", _ZOOKEEPER),
    5: ("StopReplica", _ZOOKEEPER),
    6: ("UpdateMetadata", _ZOOKEEPER),
    7: ("ControlledShutdown", _ZOOKEEPER),
    38: ("CreateDelegationToken", _TOKENS),
    39: ("RenewDelegationToken", _TOKENS),
    40: ("ExpireDelegationToken", _TOKENS),
    41: ("DescribeDelegationToken", _TOKENS),
    52: ("Vote", _RAFT),
    53: ("BeginQuorumEpoch", _RAFT),
    54: ("EndQuorumEpoch", _RAFT),
    56: ("AlterPartition", _NODES),
    57: (
        "UpdateFeatures",
        "levels of features are fixed: metadata, transactions and groups as in a new Kafka 4",
    ),
    58: ("Envelope", _NODES),
    59: ("FetchSnapshot", _RAFT),
    62: ("BrokerRegistration", _NODES),
    63: ("BrokerHeartbeat", _NODES),
    64: ("UnregisterBroker", "an embedded cluster stops its brokers itself"),
    67: ("AllocateProducerIds", _NODES),
    70: ("ControllerRegistration", _NODES),
    73: ("AssignReplicasToDirs", _NODES),
    76: ("ShareGroupHeartbeat", _SHARES),
    77: ("ShareGroupDescribe", _SHARES),
    78: ("ShareFetch", _SHARES),
    79: ("ShareAcknowledge", _SHARES),
    80: ("AddRaftVoter", _RAFT),
    81: ("RemoveRaftVoter", _RAFT),
    82: ("UpdateRaftVoter", _RAFT),
    83: ("InitializeShareGroupState", _SHARES),
    84: ("ReadShareGroupState", _SHARES),
    85: ("WriteShareGroupState", _SHARES),
    86: ("DeleteShareGroupState", _SHARES),
    87: ("ReadShareGroupStateSummary", _SHARES),
    88: ("StreamsGroupHeartbeat", _STREAMS),
    89: ("StreamsGroupDescribe", _STREAMS),
    90: ("DescribeShareGroupOffsets", _SHARES),
    91: ("AlterShareGroupOffsets", _SHARES),
    92: ("DeleteShareGroupOffsets", _SHARES),
    93: ("StreamsGroupTopologyDescriptionUpdate", _STREAMS),
    94: ("UnregisterController", _RAFT),
}
"""Name and reason by API key."""

OTHER_VERSIONS: Mapping[int, str] = {
    0: "Produce 0 to 2, the message formats before Kafka 0.11: listed and refused, as Kafka 4 does",
    1: "Fetch 0 to 3, whose answers are message formats before Kafka 0.11; Kafka 4.0 has removed them",
    2: "ListOffsets 0, removed by Kafka 4.0; with it the offsets of whole segments",
    22: "InitProducerId 6, two-phase commit (KIP-939): not released",
}
"""By API key: the versions that are left out although the request is served."""


def ranges_table(ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> str:
    """Return a table of the versions that each of these clusters offers, by request."""
    lines = [f"| key | request | {' | '.join(ranges)} |", f"|--:|---|{'---|' * len(ranges)}"]
    for key in sorted({key for each in ranges.values() for key in each}):
        name = API_KEYS[key].name if key in API_KEYS else SKIPPED.get(key, ("?", ""))[0]
        cells = (_range(each.get(key)) for each in ranges.values())
        lines.append(f"| {key} | {name} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def skipped_table() -> str:
    """Return a table of the requests and versions that are left out, with the reasons."""
    lines = ["| key | request | why it is left out |", "|---|---|---|"]
    lines += [f"| {key} | {name} | {why} |" for key, (name, why) in SKIPPED.items()]
    lines += [f"| {key} | {API_KEYS[key].name} | {why} |" for key, why in OTHER_VERSIONS.items()]
    return "".join(f"{line}\n" for line in lines)


def _range(found: tuple[int, int] | None) -> str:
    return "" if found is None else f"{found[0]}-{found[1]}"
