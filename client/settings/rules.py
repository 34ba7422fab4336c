"""From options to complete and consistent settings; kafka-python's options of other versions.

Contradictions are resolved as in kafka-python: an explicit option that cannot be met is an error; idempotence
that is on by default is switched off with a warning.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import attrs

from splashdam.client.settings.producer_settings import ProducerSettings, partitioner_named
from splashdam.client.settings.security_settings import check_security
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import fields
from splashdam.model.options import MAX_INT, from_options, from_properties, kafka_name
from splashdam.record.compression import Compression

logger = logging.getLogger("splashdam.client")

_IDEMPOTENCE_LIMIT_IN_FLIGHT = 5

_NAMES = frozenset(field.name for field in attrs.fields(ProducerSettings))
_DOTTED = frozenset(map(kafka_name, attrs.fields(ProducerSettings)))

_client_numbers = itertools.count(1)


def producer_settings(options: Mapping[str, Any]) -> ProducerSettings:
    """Check and complete the keyword options of a producer.

    Raises:
        KafkaConfigurationError: an option is unknown (the message suggests the nearest name), not supported,
            invalid, or contradicts another one.
    """
    options = present_options(options)
    refuse_names_of_others(options, dotted=False)
    if isinstance(options.get("partitioner"), str):
        options["partitioner"] = _partitioner_named(options["partitioner"])
    settings = from_options(ProducerSettings, options, what="producer")
    settings = attrs.evolve(
        settings,
        acks=-1 if settings.acks == "all" else int(settings.acks),
        compression_type=None if settings.compression_type == "none" else settings.compression_type,
        client_id=settings.client_id or f"splashdam-producer-{next(_client_numbers)}",
    )
    compression(settings)
    topic_compression(settings)
    check_security(settings, options, embedded=_is_embedded(settings.bootstrap_servers))
    settings = _settle_idempotence(settings, options)
    settings = _settle_delivery_timeout(settings, options)
    settings = _settle_backoff(settings, options, "retry_backoff_ms", "retry_backoff_max_ms")
    settings = _settle_backoff(settings, options, "reconnect_backoff_ms", "reconnect_backoff_max_ms")
    setup = "socket_connection_setup_timeout_ms"
    return _settle_backoff(settings, options, setup, "socket_connection_setup_timeout_max_ms")


def _partitioner_named(name: str) -> Any:
    try:
        return partitioner_named(name)
    except ValueError as error:
        raise KafkaConfigurationError(f"partitioner={name!r} {error}") from None


def options_from_properties(properties: Mapping[str, str], *, what: str = "producer") -> dict[str, Any]:
    """Return keyword options from Kafka's dotted names; errors call them properties of a ``what``.

    Raises:
        KafkaConfigurationError: a name is unknown or not supported, or a value does not parse.
    """
    from splashdam.client.settings.security_properties import take_security_properties

    refuse_names_of_others(properties, dotted=True)
    security, rest = take_security_properties(properties)
    for name in rest:
        reason = refusal_of(name)
        if reason:
            raise KafkaConfigurationError(f"{name} cannot be set: {reason}")
    if "partitioner" in rest and "partitioner.class" not in rest:  # librdkafka's name for it
        rest = {**rest, "partitioner.class": rest["partitioner"]}
        del rest["partitioner"]
    options = from_properties(ProducerSettings, rest, what=what)
    for name in security.keys() & options.keys():
        raise KafkaConfigurationError(
            f"{name.replace('_', '.')} is given, and so is another property with the same meaning"
        )
    return {**options, **security}


def refuse_positional(producer: str, given: tuple[object, ...]) -> NoReturn:
    """See ``other_names.refuse_positional``."""
    from splashdam.client.settings import other_names

    other_names.refuse_positional(producer, given)


def refuse_names_of_others(options: Mapping[str, Any], *, dotted: bool) -> None:
    """Refuse names of other clients with a sentence that says what they are here.

    Args:
        options: what was given, by name.
        dotted: whether they are properties, with Kafka's dotted names.

    Raises:
        KafkaConfigurationError: a name is another client's.
    """
    known = _DOTTED if dotted else _NAMES
    for name in options:
        if name not in known:
            from splashdam.client.settings.other_names import hint

            text = hint(name, dotted=dotted)
            if text:
                raise KafkaConfigurationError(text)


def compression(settings: ProducerSettings) -> Compression:
    """Return codec and level of the batches.

    Raises:
        KafkaConfigurationError: the codec's library is not installed, or the codec has no such level.
    """
    return Compression.parse(settings.compression_type, _level(settings, settings.compression_type))


def topic_compression(settings: ProducerSettings) -> dict[str, Compression]:
    """Return codec and level of the topics that have their own.

    Raises:
        KafkaConfigurationError: as ``compression``, with the topic's name, or a level is not a number.
    """
    found = {}
    for topic, text in settings.topic_compression.items():
        name, _, level = (text or "none").partition(":")
        try:
            found[topic] = Compression.parse(name.strip(), int(level) if level else _level(settings, name))
        except (KafkaConfigurationError, ValueError) as error:
            raise KafkaConfigurationError(f"topic_compression of {topic!r}, {text!r}: {error}") from None
    return found


def _level(settings: ProducerSettings, codec: str | None) -> int | None:
    level: int | None = getattr(settings, f"compression_{codec}_level", None)
    return level


def _is_embedded(bootstrap_servers: object) -> bool:
    return isinstance(bootstrap_servers, str) and bootstrap_servers.strip().startswith("embedded:")


def _settle_idempotence(settings: ProducerSettings, options: Mapping[str, Any]) -> ProducerSettings:
    if not settings.enable_idempotence:
        if settings.transactional_id is not None:
            raise KafkaConfigurationError("transactional_id needs enable_idempotence=True")
        return settings
    conflicts = []
    if settings.acks != -1:
        conflicts.append(f"acks={settings.acks}")
    if settings.retries == 0:
        conflicts.append("retries=0")
    in_flight = settings.max_in_flight_requests_per_connection
    if in_flight > _IDEMPOTENCE_LIMIT_IN_FLIGHT:
        conflicts.append(f"max_in_flight_requests_per_connection={in_flight}")
    if not conflicts:
        return settings
    found = " and ".join(conflicts)
    if "enable_idempotence" in options or settings.transactional_id is not None:
        wish = "enable_idempotence=True" if settings.transactional_id is None else "transactional_id"
        raise KafkaConfigurationError(
            f"{wish} needs acks='all', retries above 0 and at most"
            f" {_IDEMPOTENCE_LIMIT_IN_FLIGHT} requests in flight, but {found}"
        )
    name = settings.client_id
    logger.warning("%s: idempotence is off, because of %s", name, found, extra=fields(client_id=name))
    return attrs.evolve(settings, enable_idempotence=False)


def _settle_delivery_timeout(settings: ProducerSettings, options: Mapping[str, Any]) -> ProducerSettings:
    # A shorter limit could end before a single attempt has had its time.
    least = min(settings.linger_ms + settings.request_timeout_ms, MAX_INT)
    if settings.delivery_timeout_ms >= least:
        return settings
    if "delivery_timeout_ms" in options:
        raise KafkaConfigurationError(
            f"delivery_timeout_ms={settings.delivery_timeout_ms} must be at least linger_ms +"
            f" request_timeout_ms, which is {least}"
        )
    return attrs.evolve(settings, delivery_timeout_ms=least)


def _settle_backoff(
    settings: ProducerSettings, options: Mapping[str, Any], first: str, longest: str
) -> ProducerSettings:
    wait, limit = getattr(settings, first), getattr(settings, longest)
    if wait <= limit:
        return settings
    if longest in options:
        raise KafkaConfigurationError(f"{first}={wait} must not be above {longest}={limit}")
    return attrs.evolve(settings, **{longest: wait})


_RETIRED: Mapping[str, str] = {
    "bootstrap_topics_filter": "the first metadata request names no topics",
    "sock_chunk_bytes": "a read takes all that the socket holds",
    "sock_chunk_buffer_count": "a read takes all that the socket holds",
}
"""Options of kafka-python 2.x, with the reason why they have no effect."""

_RENAMED: Mapping[str, str] = {
    "api_version_auto_timeout_ms": "bootstrap_timeout_ms",
    "socks5_proxy": "proxy_url",
}

_REFUSED: Mapping[str, str] = {
    "default_api_timeout_ms": "max_block_ms is how long calls wait",
    "net": "connections are driven by trio; AsyncKafkaProducer runs in your own loop",
}
"""Options of later kafka-python versions, with the alternative."""

_CALLER = 5
"""Stack level of the caller of a producer's constructor."""


def present_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Rename options of other versions, and drop those without effect.

    Raises:
        KafkaConfigurationError: an option is not supported (the message names the alternative), or is given
            under two names.
    """
    present: dict[str, Any] = {}
    for name, value in options.items():
        if name in _RETIRED:
            _warn(f"{name} has no effect: {_RETIRED[name]}")
        elif name in _REFUSED:
            if value is not None:
                raise KafkaConfigurationError(f"{name} cannot be set: {_REFUSED[name]}")
        elif name in _RENAMED:
            if value is not None:
                _rename(present, options, name, value)
        else:
            present[name] = value
    return present


def refusal_of(name: str) -> str:
    """Return why a property cannot be set; empty if it can."""
    return _REFUSED.get(name.replace(".", "_"), "")


def _rename(present: dict[str, Any], options: Mapping[str, Any], name: str, value: Any) -> None:
    new = _RENAMED[name]
    if options.get(new) is not None:
        raise KafkaConfigurationError(f"{name} is an earlier name of {new}, which is given, too")
    _warn(f"{name} is now {new}")
    present[new] = value


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=_CALLER)
