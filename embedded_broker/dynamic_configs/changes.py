"""Changes of configurations: single ones (IncrementalAlterConfigs), or all of a resource (AlterConfigs).

Semantics and error codes are those of Kafka's ``ConfigurationControlManager`` and ``ConfigAdminManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from splashdam.embedded_broker.dynamic_configs.resources import (
    RESOURCES,
    ConfigResource,
    HasConfigs,
    ResourceType,
    check_is_broker,
    check_levels,
    set_levels,
)
from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, Steps
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, InvalidRequestError, error_for

R = TypeVar("R", bound="Asked")
Answered = TypeVar("Answered")


class Operation(IntEnum):
    """Kafka's ``AlterConfigOp.OpType``."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one configuration."""

    name: str
    operation: int
    value: str | None


class Asked(Protocol):
    """A resource in either request."""

    resource_type: int
    resource_name: str


def alter_each(
    resources: Sequence[R], alter: Callable[[R], None], answer_with: Callable[..., Answered]
) -> Steps[list[Answered]]:
    """Alter one resource after the other; one that is named twice is not altered at all.

    Args:
        resources: of the request.
        alter: alters one, or raises a BrokerResponseError.
        answer_with: class of the answers.
    """
    answers: list[Answered] = []
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    for asked in resources:
        answer: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
        }
        try:
            if times[asked.resource_type, asked.resource_name] > 1:
                raise InvalidRequestError("each resource may be named only once")
            alter(asked)
            yield CHANGE_UNITS
        except BrokerResponseError as error:
            answer["error_code"], answer["error_message"] = error.code, error.message
            yield 1
        answers.append(answer_with(**answer))
    return answers


def alter_some(
    broker: HasConfigs, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool
) -> None:
    """Make single changes to the configs of a resource, all or none.

    Raises:
        BrokerResponseError: INVALID_REQUEST (42), INVALID_CONFIG (40), UNKNOWN_TOPIC_OR_PARTITION (3), ….
    """
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequestError("a configuration is named more than once")
    for change in changes:
        _check_change(change)
    if kind == ResourceType.BROKER_LOGGER:
        _alter_loggers(broker, name, changes, validate_only=validate_only)
        return
    resource = _resource(broker, kind, name)
    configs = dict(resource.present)
    for change in changes:
        value = _changed(change, configs.get(change.name), resource)
        if value is None:
            configs.pop(change.name, None)
        else:
            configs[change.name] = value
    _put(resource, configs, [change.name for change in changes], validate_only=validate_only)


def alter_all(
    broker: HasConfigs,
    kind: int,
    name: str,
    configs: Sequence[tuple[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    """Replace all configs of a resource.

    Raises:
        As ``alter_some``.
    """
    resource = _resource(broker, kind, name)
    wanted = {}
    for key, value in configs:
        if key in wanted:
            raise InvalidRequestError("a configuration is named more than once")
        if value is None:
            raise InvalidRequestError(f"{key} has no value")
        wanted[key] = value
    before = resource.present
    changed = [key for key in {**before, **wanted} if before.get(key) != wanted.get(key)]
    _put(resource, wanted, changed, validate_only=validate_only)


def _resource(broker: HasConfigs, kind: int, name: str) -> ConfigResource:
    if kind not in RESOURCES:
        raise InvalidRequestError(f"unknown resource type {kind}")
    return RESOURCES[kind](broker, name)


def _put(
    resource: ConfigResource, configs: dict[str, str], changed: list[str], *, validate_only: bool
) -> None:
    before = resource.present
    resource.check(configs, changed)
    if not validate_only and configs != before:
        resource.put(configs)


def _check_change(change: Change) -> None:
    if change.operation not in set(Operation):
        raise InvalidRequestError(f"{change.name}: there is no operation {change.operation}")
    if change.value is None and change.operation != Operation.DELETE:
        raise InvalidRequestError(f"{change.name} has no value")


def _changed(change: Change, before: str | None, resource: ConfigResource) -> str | None:
    """Return the new value; None: the config is removed."""
    if change.operation == Operation.DELETE:
        return None
    value = change.value or ""
    if change.operation == Operation.SET:
        return value
    default = resource.list_of(change.name)
    if default is None:
        raise error_for(
            ErrorCode.INVALID_CONFIG,
            f"{change.name} is not a list: APPEND and SUBTRACT need one",
        )
    parts = [part for part in (default if before is None else before).split(",") if part]
    for part in map(str.strip, value.split(",")):
        if change.operation == Operation.SUBTRACT:
            parts = [each for each in parts if each != part]
        elif part not in parts:
            parts.append(part)
    return ",".join(parts)


def _alter_loggers(broker: HasConfigs, name: str, changes: Iterable[Change], *, validate_only: bool) -> None:
    check_is_broker(broker, name, may_be_all=False)
    levels: dict[str, str | None] = {}
    for change in changes:
        if change.operation not in (Operation.SET, Operation.DELETE):
            raise InvalidRequestError("levels of loggers are not lists: use SET or DELETE")
        levels[change.name] = change.value if change.operation == Operation.SET else None
    check_levels(levels)
    if not validate_only:
        set_levels(levels)
