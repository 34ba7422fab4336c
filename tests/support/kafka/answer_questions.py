"""Everything that is asked of two clusters to compare their answers, by client, and what is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from splashdam.wire.fields import ArrayType, StructType
from splashdam.wire.message import Struct
from splashdam.wire.registry import API_KEYS
from support.kafka.admin_questions import (
    ask_about_acls,
    ask_about_configurations,
    ask_about_quotas,
    ask_about_the_cluster,
    ask_about_topics,
    ask_about_users,
    ask_who_i_am,
)
from support.kafka.answer_shapes import Shape, Speaker
from support.kafka.client_questions import (
    ask_about_groups,
    ask_about_offsets,
    ask_about_records,
    ask_about_telemetry,
    ask_about_transactions,
)

USER, PASSWORD = "anna", "anna-secret"
LOGIN = f"\0{USER}\0{PASSWORD}".encode()

_PARTS = re.compile(r"\[\]|\.(?=[a-z])")
_ANOTHER_LEADER = "told where another broker has become the leader; one broker is asked"
EXCUSED: Mapping[str, str] = {
    "Produce: node_endpoints[].host": _ANOTHER_LEADER,
    "Produce: node_endpoints[].rack": _ANOTHER_LEADER,
    "Fetch: node_endpoints[].host": _ANOTHER_LEADER,
    "Fetch: node_endpoints[].rack": _ANOTHER_LEADER,
}
"""Fields that no question is about, and why."""

_SAYS_NOTHING = "Kafka says UNKNOWN_SERVER_ERROR (-1), or nothing; this broker says what is wrong"
DIFFERENT: Mapping[str, tuple[str, ...]] = {
    _SAYS_NOTHING: ("IncrementalAlterConfigs no operation: responses[].error_code: 42 instead of -1",),
    "ApiVersions 3 leaves out features whose lowest level is 0: here all, in Kafka not metadata.version": (
        "ApiVersions name: supported_features*",
    ),
}
"""Why an answer differs from Kafka 4.4.0's → the places."""

DIFFERENT_WHERE_REFUSED: Mapping[str, tuple[str, ...]] = {
    _SAYS_NOTHING: (
        "CreateAcls as super user: *: results[].error_code: 42 instead of -1",
        "DescribeAcls as super user: unknown resource: *",
    ),
    "as where nothing is authorized": ("ApiVersions refused: name: supported_features*",),
}
"""The same where an authorizer decides."""


def ask_everything(speaker: Speaker) -> None:
    """All of it, in order."""
    ask_about_topics(speaker)
    ask_about_the_cluster(speaker)
    ask_about_configurations(speaker)
    ask_about_acls(speaker)
    ask_about_quotas(speaker)
    ask_about_users(speaker)
    ask_about_records(speaker)
    ask_about_groups(speaker)
    ask_about_offsets(speaker)
    ask_about_transactions(speaker)
    ask_about_telemetry(speaker)


def open_notes(servers: str) -> dict[str, Shape]:
    """What a cluster answers that authorizes nothing."""
    with Speaker(servers) as speaker:
        ask_everything(speaker)
    return speaker.notes


def guarded_notes(servers: str, sasl_servers: str) -> dict[str, Shape]:
    """The answers of a cluster with an authorizer, to a super user and to a user without rights."""
    with Speaker(servers, "as super user: ") as speaker:
        ask_about_topics(speaker)
        ask_about_acls(speaker)
    refused = Speaker(sasl_servers, "refused: ", LOGIN, waits=False)
    ask_who_i_am(refused, LOGIN)
    with refused:
        ask_everything(refused)
    return {**speaker.notes, **refused.notes}


def fields_of(struct: type[Struct], where: str) -> Iterator[str]:
    """The places of all strings, bytes and arrays in a structure, and of whatever else may be null."""
    for field in struct.FIELDS:
        place, kind = f"{where}{field.name}", field.type
        inner = kind.element if isinstance(kind, ArrayType) else kind
        may_be_null = field.nullable.last >= field.nullable.first
        if (
            may_be_null
            or isinstance(kind, ArrayType)
            or getattr(kind, "name", "") in ("string", "bytes", "records")
        ):
            yield place
        if isinstance(inner, StructType):
            yield from fields_of(inner.cls, f"{place}[]." if isinstance(kind, ArrayType) else f"{place}.")


def unasked(notes: Mapping[str, Shape]) -> list[str]:
    """Fields of answers that none of the notes is about."""
    seen = {f"{question.partition(' ')[0]}: {where}" for question, shape in notes.items() for where in shape}
    seen |= {each[: end.start()] for each in seen for end in _PARTS.finditer(each)}
    return [
        place
        for api in API_KEYS.values()
        for field in fields_of(api.response, "")
        for place in [f"{api.name}: {field}"]
        if place not in seen
    ]
