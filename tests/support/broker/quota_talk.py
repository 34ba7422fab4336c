"""Sets quotas as an admin client does."""

from __future__ import annotations

from splashdam.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from support.broker.broker_talk import Talk


async def alter(
    talk: Talk, entity: dict[str, str | None], *, validate_only: bool = False, **values: float | None
) -> int:
    """Sets quotas, removes those that are None, and returns the code."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    code: int = (await talk.ask(request, 1)).entries[0].error_code
    return code
