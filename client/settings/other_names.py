"""What people coming from confluent-kafka write, and what it is called here.

The table is also part of docs/how-to/migration.md (``tools/migration_page.py``). Nothing of it is converted
silently: several of librdkafka's properties have other units, or a meaning that is not quite the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

import attrs

from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.security_properties import SAME
from splashdam.model.options import kafka_name

LIBRDKAFKA: Mapping[tuple[str, ...], str] = {
    ("metadata.broker.list",): "`bootstrap_servers`",
    ("queue.buffering.max.kbytes", "queue.buffering.max.messages"): (
        "`buffer_memory`, in bytes: `send` waits while it is used up"
    ),
    ("queue.buffering.max.ms",): "`linger_ms`",
    ("message.timeout.ms",): "`delivery_timeout_ms`",
    ("message.max.bytes",): "`max_request_size`",
    ("message.send.max.retries",): "`retries`",
    ("request.required.acks",): "`acks`",
    ("max.in.flight",): "`max_in_flight_requests_per_connection`",
    ("batch.num.messages",): "`batch_size`, in bytes",
    ("compression.codec",): "`compression_type`",
    ("compression.level",): "`compression_gzip_level`, `compression_lz4_level` or `compression_zstd_level`",
    ("partitioner_cb",): "`partitioner`",
    ("socket.timeout.ms",): "`request_timeout_ms`",
    ("socket.send.buffer.bytes",): "`send_buffer_bytes`",
    ("socket.receive.buffer.bytes",): "`receive_buffer_bytes`",
    ("socket.keepalive.enable", "socket.nagle.disable"): "`socket_options`, which has TCP_NODELAY by default",
    ("topic.metadata.refresh.interval.ms",): "`metadata_max_age_ms`",
    ("sasl.mechanisms",): "`sasl_mechanism`",
    ("sasl.username",): "`sasl_plain_username`",
    ("sasl.password",): "`sasl_plain_password`",
    ("sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt", "oauth_cb"): (
        "`sasl_oauth_token_provider`"
    ),
    ("sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd"): (
        "nothing: keys are those of KRB5_CLIENT_KTNAME, or of the cache that kinit fills"
    ),
    ("ssl.ca.location", "ssl.ca.pem"): "`ssl_cafile`, a path or the PEM text",
    ("ssl.certificate.location", "ssl.certificate.pem"): "`ssl_certfile`, a path or the PEM text",
    ("ssl.key.location", "ssl.key.pem"): "`ssl_keyfile`, a path or the PEM text",
    ("ssl.crl.location",): "`ssl_crlfile`",
    ("enable.ssl.certificate.verification",): "`ssl_context`, made by your own code",
    ("on_delivery", "dr_cb", "dr_msg_cb", "delivery.report.only.error"): (
        "`add_callback` and `add_errback` of the future that `send` returns"
    ),
    ("stats_cb", "statistics.interval.ms"): "`metrics()` of the producer, read when you want it",
    ("error_cb", "throttle_cb", "logger", "debug", "log_level"): (
        "the loggers below `splashdam`; errors of records are in their futures"
    ),
    (
        "api.version.request",
        "api.version.request.timeout.ms",
        "api.version.fallback.ms",
        "broker.version.fallback",
    ): "nothing: each broker is asked which versions it speaks",
    ("queue.buffering.backpressure.threshold", "sticky.partitioning.linger.ms", "message.copy.max.bytes"): (
        "nothing: leave it out"
    ),
}
"""librdkafka's properties that Kafka does not have → what there is here, as Markdown."""

_BY_NAME = {name: here for names, here in LIBRDKAFKA.items() for name in names}
_FIELDS = {field.name: field for field in attrs.fields(ProducerSettings)}
_MOST_NAMED = 6


def as_markdown() -> str:
    """The table of the page."""
    rows = (f"| {', '.join(f'`{name}`' for name in names)} | {here} |" for names, here in LIBRDKAFKA.items())
    return "\n".join(["| property of librdkafka | here |", "|---|---|", *rows]) + "\n"


def hint(name: str, *, dotted: bool) -> str:
    """What a name of another client is here, as a sentence; empty if no client has it.

    Args:
        name: as it was given; librdkafka's also with underscores.
        dotted: whether Kafka's dotted names are wanted, and not Python names.
    """
    here = _BY_NAME.get(name) or _BY_NAME.get(name.replace("_", "."))
    if here is not None:
        return f"{name!r} is a name of librdkafka; here it is {_plain(here, dotted=dotted)}"
    if not dotted and "." in name:
        ours = option_of(name)
        meaning = "" if ours is None else f"; in Python the option is {ours}"
        return f"{name!r} is written as in properties: those go through from_properties(){meaning}"
    return ""


def option_of(name: str) -> str | None:
    """Return the option that has this name in Kafka, librdkafka or this project; None for an unknown name."""
    if name in _FIELDS:
        return name
    for field in _FIELDS.values():
        if kafka_name(field) == name:
            return str(field.name)
    if name in SAME:
        return SAME[name]
    named = re.match(r"`(\w+)`", _BY_NAME.get(name, ""))
    return named[1] if named and named[1] in _FIELDS else None


def _plain(here: str, *, dotted: bool) -> str:
    def write(match: re.Match[str]) -> str:
        field = _FIELDS.get(match[1])
        return kafka_name(field) if dotted and field is not None else match[1]

    return re.sub(r"`([^`]+)`", write, here)


def refuse_positional(producer: str, given: tuple[object, ...]) -> NoReturn:
    """Refuse what was given to a producer's constructor without a name, such as confluent-kafka's dict.

    Raises:
        TypeError: says how to write it; values, which may be passwords, are not shown.
    """
    first = given[0]
    if not isinstance(first, Mapping):
        what = "" if len(given) > 1 else f": write {producer}(bootstrap_servers=…)"
        raise TypeError(f"{producer}() takes keyword options only, not a {type(first).__name__}{what}")
    names = [str(name) for name in first]
    options = dict.fromkeys(filter(None, map(option_of, names)))
    if options and len(options) == len(names) == len(options.keys() & names):
        raise TypeError(f"{producer}() takes keyword options, not a dict: write {producer}(**options)")
    shown = ", ".join(f"{name}=…" for name in [*options][:_MOST_NAMED] or ["bootstrap_servers"])
    more = ", …" if len(options) > _MOST_NAMED else ""
    raise TypeError(
        f"{producer}() takes keyword options, not a dict: write {producer}({shown}{more}),"
        f" or {producer}.from_properties({{…}}) for Kafka's dotted names"
    )
