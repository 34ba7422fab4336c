"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from splashdam.model.broker_errors import error_for
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from splashdam.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Entity = Mapping[str, str | None]
"""Names by type: ``user``, ``client-id`` or ``ip``; None is the default of the type."""

QUOTAS = {
    "producer_byte_rate": "bytes per second that producers may send to a broker",
    "consumer_byte_rate": "bytes per second that consumers may fetch from a broker",
    "request_percentage": "share of a broker's time; 100 is one thread",
    "controller_mutation_rate": "partitions per second that may be created and deleted",
    "connection_creation_rate": "new connections per second of an address",
}
"""Kafka's names of quotas, with their units."""

_EXACT, _DEFAULT = 0, 1  # match types


class EntityQuotas(NamedTuple):
    """The quotas of an entity, by Kafka's names."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


async def describe_quotas(client: ClusterClient, entity: Entity | None = None) -> list[EntityQuotas]:
    """Return the quotas of an entity, or of all.

    Raises:
        BrokerResponseError: this client may not ask.
        KafkaTimeoutError: the cluster did not answer.
    """
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in (entity or {}).items()
    ]

    def entries(answer: DescribeClientQuotasResponse) -> list[EntityQuotas]:
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message or "describing quotas")
        return [
            EntityQuotas(
                {part.entity_type: part.entity_name for part in each.entity},
                {quota.key: quota.value for quota in each.values},
            )
            for each in answer.entries or ()
        ]

    request = DescribeClientQuotasRequest(components=components, strict=entity is not None)
    return await client.any(request, entries)


async def alter_quotas(
    client: ClusterClient, entity: Entity, *, changes: Mapping[str, float], remove: Sequence[str] = ()
) -> None:
    """Set quotas of an entity, and remove others.

    Raises:
        BrokerResponseError: the entity or a quota is unknown, or a value is invalid; nothing was changed.
        KafkaTimeoutError: the cluster did not answer.
    """
    ops = [OpData(key=name, value=value) for name, value in changes.items()]
    ops += [OpData(key=name, value=0.0, remove=True) for name in remove]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]

    def check(answer: AlterClientQuotasResponse) -> None:
        for each in answer.entries:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or "altering quotas")

    await client.controller(AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)]), check)
