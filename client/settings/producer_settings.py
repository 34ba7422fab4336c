"""Every option of the producers in one table: name, default, rule and meaning.

Python names are kafka-python's, dotted names are Kafka's (``KafkaProducer.from_properties``). Defaults are
Java's where the two differ, except where a reason is given with the option. Which options contradict each
other is decided in ``rules.py``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from splashdam.client.partitioning.partitioners import (
    DefaultPartitioner,
    partition_function,
)
from splashdam.client.serializers import DefaultSerializer, serialize_function
from splashdam.client.settings.security_settings import SecuritySettings
from splashdam.model.options import MAX_INT, MAX_LONG, at_least, one_of, option, parse_float, whole_number
from splashdam.model.secrets import secret_or_none

JAVA_SERIALIZERS: Mapping[str, type[DefaultSerializer] | None] = {
    "StringSerializer": DefaultSerializer,
    "ByteArraySerializer": None,
    "BytesSerializer": None,
    "ByteBufferSerializer": None,
}


def java_class(text: str, known: Mapping[str, Any]) -> Any:
    """Return our counterpart of a class that a Java application's properties name."""
    name = text.rpartition(".")[2]
    if name not in known:
        raise ValueError(
            f"has no counterpart here (known: {', '.join(known)}); pass an object to the constructor"
        )
    kind = known[name]
    return None if kind is None else kind()


def partitioner_named(name: str) -> Any:
    """Return the partitioner with the behaviour of a Java class, or of a name in librdkafka.

    Raises:
        ValueError: no partitioner here corresponds to ``name``.
    """
    from splashdam.client.partitioning.hash_partitioners import BY_NAME

    return java_class(name, BY_NAME)


def parse_topic_compression(text: str) -> dict[str, str]:
    """Parse the property's form, for example ``orders=zstd:3, metrics=lz4``."""
    named: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        topic, separator, codec = (part.strip() for part in entry.partition("="))
        if not (topic and separator and codec):
            raise ValueError(f"{entry!r} is not topic=codec or topic=codec:level")
        if topic in named:
            raise ValueError(f"names topic {topic!r} twice")
        named[topic] = codec
    return named


def check_topic_compression(value: Any) -> str | None:
    fine = isinstance(value, Mapping) and all(
        isinstance(topic, str) and (codec is None or isinstance(codec, str)) for topic, codec in value.items()
    )
    return None if fine else "must be a dict of topic to 'codec' or 'codec:level'"


def parse_acks(text: str) -> int | str:
    if text not in ("all", "-1", "0", "1"):
        raise ValueError("must be all, -1, 0 or 1")
    return text if text == "all" else int(text)


def parse_codec(text: str) -> str | None:
    """Return the name of a codec; None for Kafka's ``none``."""
    return None if text == "none" else text


def accepted(convert: Any) -> Any:
    """Return a check that ``convert`` accepts a plug-in; its error names option and value."""

    def check(value: Any) -> str | None:
        convert(value)
        return None

    return check


def _port_or_none(value: Any) -> str | None:
    """Check a port; 0 is a free one."""
    is_right = value is None or (type(value) is int and 0 <= value <= 65_535)
    return None if is_right else "must be a port from 0 to 65535, or None"


def optional_whole_number(minimum: int) -> Any:
    """Return a check that the value is None, or an integer not below ``minimum``."""
    check = whole_number(minimum)
    return lambda value: None if value is None else check(value)


def text_or_none(value: Any) -> str | None:
    """Check a text that goes into requests: the protocol's length field limits it."""
    if value is not None and not isinstance(value, str):
        return f"must be str, not {type(value).__name__}"
    try:
        size_bytes = len((value or "").encode())
    except UnicodeEncodeError as error:
        return f"cannot be sent: {error}"
    return None if size_bytes < 1 << 15 else f"takes {size_bytes} bytes; the protocol has room for 32767"


def check_transactional_id(value: Any) -> str | None:

    return "must not be empty" if value == "" else text_or_none(value)


def check_socket_options(value: Any) -> str | None:
    fine = isinstance(value, list | tuple) and all(
        isinstance(one, list | tuple) and len(one) == 3 for one in value
    )
    return None if fine else "must be a list of (level, option, value) as socket.setsockopt takes them"


def check_reporters(value: Any) -> str | None:

    if not isinstance(value, list | tuple):
        return "must be a list"
    needed = ("init", "metric_change", "metric_removal", "close")
    for each in value:
        missing = [name for name in needed if not callable(getattr(each, name, None))]
        if missing:
            return f"{each!r} has no {' and no '.join(missing)}"
    return None


def parse_no_reporters(text: str) -> list[Any]:
    """Refuse any name: a property can only name Java classes."""
    if text:
        raise ValueError("names Java classes; pass objects to the constructor")
    return []


DEFAULT_BATCH_SIZE = 256 * 1024
"""Chosen by measurement: docs/decisions/batch-size.md."""

_VERSION = re.compile(r"auto|[0-9]+(\.[0-9]+)*")
_PROXY = re.compile(r"(socks5h?|socks4a?|http)://[^/?#\s]+/?")


def _interceptors(value: Any) -> str | None:
    if not isinstance(value, list | tuple):
        return f"must be a list of interceptors, not {type(value).__name__}"
    for each in value:
        if isinstance(each, type):
            return f"{each.__name__} is a class: give an object of it"
        if not any(callable(getattr(each, name, None)) for name in ("on_send", "on_acknowledgement")):
            return f"{type(each).__name__} has neither on_send() nor on_acknowledgement()"
    return None


def _load_interceptors(text: str) -> Any:
    from splashdam.client.interceptors import load_interceptors

    return load_interceptors(text)


def _callable_or_none(value: Any) -> str | None:
    return None if value is None or callable(value) else f"must be callable, not {type(value).__name__}"


def _not_as_text(_text: str) -> Any:
    raise ValueError("is a function; pass it to the constructor")


def _version_or_none(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _VERSION.fullmatch(value)):
        return None
    fine = isinstance(value, tuple | list) and value and all(type(part) is int for part in value)
    return None if fine else "must be a tuple of whole numbers, as (2, 8), or None"


def _time_or_none(value: Any) -> str | None:
    return None if value is None else at_least(0, MAX_LONG)(value)


def _lookup(value: Any) -> str | None:
    if value == "resolve_canonical_bootstrap_servers_only":
        return "is not supported: give the canonical names in bootstrap_servers"
    return None if value in ("use_all_dns_ips", "default") else "must be 'use_all_dns_ips'"


def _proxy_or_none(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _PROXY.fullmatch(value)):
        return None
    return "must be socks5://HOST:PORT, socks5h://… (the proxy looks names up), socks4://… or http://…"


def _client_or_none(value: Any) -> str | None:
    if value is None or getattr(value, "__module__", "").partition(".")[0] == "kafka":
        return None
    return "cannot be replaced: for tests give AsyncKafkaProducer a `connect`, or use EmbeddedBroker"


def _no_class(text: str) -> Any:
    raise ValueError("names a class; it has no effect here, leave it out")


_LISTENING = {"section": "Interceptors and batches"}
_DROP_IN = {"section": "As kafka-python has them"}
"""Sections of docs/reference/options.md; all others are about sending."""


@attrs.frozen(kw_only=True, eq=False, repr=False)  # unused methods would cost import time
class ProducerSettings(SecuritySettings):
    """The options of ``KafkaProducer`` and ``AsyncKafkaProducer``. Times in ms, sizes in bytes."""

    bootstrap_servers: Any = option(
        "localhost:9092",
        # An iterator is read twice: for an embedded address, and for the addresses of a cluster.
        convert=lambda servers: list(servers) if isinstance(servers, Iterator) else servers,
        doc="Bootstrap addresses: 'host:port', 'a:1,b:2' or a list, default port 9092; or 'embedded:DIR' for"
        " a broker in this process with the data directory DIR",
    )
    client_id: str | None = option(
        None,
        check=text_or_none,
        parse=str,
        doc="Name of this client in the broker's logs; default splashdam-producer-N",
    )
    key_serializer: Any = option(
        None,
        check=accepted(lambda value: serialize_function(value, "key_serializer")),
        parse=lambda text: java_class(text, JAVA_SERIALIZERS),
        doc="Turns keys into bytes: a Serializer or f(key); default: keys are bytes",
    )
    value_serializer: Any = option(
        None,
        check=accepted(lambda value: serialize_function(value, "value_serializer")),
        parse=lambda text: java_class(text, JAVA_SERIALIZERS),
        doc="Turns values into bytes: a Serializer or f(value); default: values are bytes",
    )
    acks: int | str = option(
        -1,
        check=one_of(-1, 0, 1, "all"),
        parse=parse_acks,
        doc="Acknowledgements that a record needs: 'all' in-sync replicas (-1), the partition leader (1),"
        " none (0)",
    )
    enable_idempotence: bool = option(
        True,
        check=one_of(True, False),
        doc="Whether the broker detects duplicates, so that retries neither duplicate nor reorder records",
    )
    transactional_id: str | None = option(
        None,
        check=check_transactional_id,
        parse=str,
        doc="Enables transactions; the newest producer with an id fences earlier ones",
    )
    transaction_timeout_ms: float = option(
        60_000,
        check=at_least(1, MAX_INT),
        parse=parse_float,
        doc="How long a transaction may be open before its coordinator aborts it",
        kafka="transaction.timeout.ms",
    )
    compression_type: str | None = option(
        None,
        check=one_of(None, "none", "gzip", "snappy", "lz4", "zstd"),
        parse=parse_codec,
        doc="Codec of the batches; all but gzip need splashdam[compression]",
    )
    compression_gzip_level: int | None = option(
        None,
        check=optional_whole_number(-1),
        parse=int,
        doc="Level for gzip, -1 or 1 to 9; default: the codec's own",
    )
    compression_lz4_level: int | None = option(
        None,
        check=optional_whole_number(1),
        parse=int,
        doc="Level for lz4, 1 to 17; default: the codec's own",
    )
    compression_zstd_level: int | None = option(
        None,
        check=optional_whole_number(-131072),
        parse=int,
        doc="Level for zstd, -131072 to 22; default: the codec's own",
    )
    topic_compression: dict[str, str | None] = option(
        {},
        check=check_topic_compression,
        parse=parse_topic_compression,
        doc="Codec, and level after a colon, of single topics: {'orders': 'zstd:3', 'images': 'none'}; in"
        " properties orders=zstd:3,images=none. Other topics have compression_type",
    )
    batch_size: int = option(
        DEFAULT_BATCH_SIZE,
        check=whole_number(0, MAX_INT),
        unit="bytes",
        doc="Maximum size of a batch for one partition, after compression; 0: a batch per record. A larger"
        " record is sent alone",
    )
    linger_ms: float = option(
        5,
        check=at_least(0, MAX_INT),
        parse=parse_float,
        doc="How long a batch that is not full waits for more records",
    )
    buffer_memory: int = option(
        32 * 1024 * 1024,
        check=whole_number(1),
        unit="bytes",
        doc="Maximum memory for queued and in-flight batches; send waits when it is used up",
    )
    max_block_ms: float = option(
        60_000,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="How long send waits for memory and for a topic's metadata, in total",
    )
    max_request_size: int = option(
        1024 * 1024,
        check=whole_number(1, MAX_INT),
        unit="bytes",
        doc="Maximum size of a request, and of one record before compression",
    )
    partitioner: Any = option(
        DefaultPartitioner(),
        check=accepted(partition_function),
        kafka="partitioner.class",
        parse=partitioner_named,
        doc="Chooses partitions: a Partitioner or f(serialized_key, all_partitions, available_partitions)",
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True,
        doc="Whether records without a key prefer partitions with few queued batches (KIP-794)",
    )
    partitioner_availability_timeout_ms: float = option(
        0,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="Records without a key avoid a broker that has taken no request for this time; 0: never",
    )
    max_in_flight_requests_per_connection: int = option(
        5,
        check=whole_number(1),
        doc="In-flight requests per broker; at most 5 with idempotence",
    )
    delivery_timeout_ms: float = option(
        120_000,
        check=at_least(0, MAX_INT),
        parse=parse_float,
        doc="Limit from the creation of a batch to its acknowledgement, retries included",
    )
    request_timeout_ms: float = option(
        30_000,
        check=at_least(1, MAX_INT),
        parse=parse_float,
        doc="How long a response may take before the connection is closed",
    )
    retries: float = option(
        2**31 - 1,
        check=at_least(0),
        parse=int,
        doc="How often a batch is retried; delivery_timeout_ms is the better limit",
    )
    retry_backoff_ms: float = option(
        100,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="Wait before the first retry; doubles each time, with jitter",
    )
    retry_backoff_max_ms: float = option(
        1_000, check=at_least(0, MAX_LONG), parse=parse_float, doc="Longest wait between two retries"
    )
    reconnect_backoff_ms: float = option(
        50,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="Wait before the next connection attempt; doubles each time",
    )
    reconnect_backoff_max_ms: float = option(
        1_000,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="Longest wait between two connection attempts",
    )
    socket_connection_setup_timeout_ms: float = option(
        10_000,
        check=at_least(1, MAX_LONG),
        parse=parse_float,
        doc="How long a connection attempt may take; doubles with each failed attempt",
    )
    socket_connection_setup_timeout_max_ms: float = option(
        30_000, check=at_least(1, MAX_LONG), parse=parse_float, doc="Maximum of that limit"
    )
    connections_max_idle_ms: float = option(
        540_000,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="A connection without traffic is closed after this time",
    )
    metadata_max_age_ms: float = option(
        300_000,
        check=at_least(1, MAX_LONG),
        parse=parse_float,
        doc="Metadata are refreshed after this time",
        kafka="metadata.max.age.ms",
    )
    metadata_max_idle_ms: float = option(
        300_000,
        check=at_least(1, MAX_LONG),
        parse=parse_float,
        doc="A topic that was not used for this time is dropped from the metadata",
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        check=one_of("none", "rebootstrap"),
        doc="What happens when no known broker can be reached: 'rebootstrap' uses bootstrap_servers again,"
        " 'none' keeps the known brokers",
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        300_000,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="After so long without a metadata response the known brokers are dropped, and bootstrap_servers"
        " are used again",
    )
    allow_auto_create_topics: bool = option(
        True, check=one_of(True, False), doc="Whether the broker may create missing topics"
    )
    receive_message_max_bytes: int = option(
        100_000_000,
        check=whole_number(1),
        doc="Maximum size of a response; a larger one closes the connection",
    )
    receive_buffer_bytes: int | None = option(
        None,
        check=optional_whole_number(1),
        parse=int,
        kafka="receive.buffer.bytes",
        doc="SO_RCVBUF of the sockets",
    )
    send_buffer_bytes: int | None = option(
        None,
        check=optional_whole_number(1),
        parse=int,
        kafka="send.buffer.bytes",
        doc="SO_SNDBUF of the sockets",
    )
    socket_options: Any = option(
        [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        check=check_socket_options,
        doc="Further socket options, as socket.setsockopt takes them",
    )
    metrics_enabled: bool = option(
        True,
        check=one_of(True, False),
        doc="False: metrics() returns None, and metric reporters are not called",
    )
    metrics_num_samples: int = option(
        2,
        check=whole_number(1, MAX_INT),
        doc="Windows over which rates, averages and maxima are computed, the current one included",
    )
    metrics_sample_window_ms: float = option(
        30_000, check=at_least(1, MAX_LONG), parse=parse_float, doc="Length of these windows"
    )
    metric_reporters: Any = option(
        [],
        check=check_reporters,
        parse=parse_no_reporters,
        doc="Metric reporters: objects, or classes to be called, with init, metric_change, metric_removal and"
        " close",
    )
    enable_metrics_push: bool = option(
        True,
        check=one_of(True, False),
        doc="Whether metrics are pushed to brokers that subscribe (KIP-714); needs splashdam[telemetry]",
    )
    console_port: int | None = option(
        None,
        check=_port_or_none,
        parse=int,
        doc="Port on 127.0.0.1 of a page that shows the cluster and the producers of this process; 0 for a"
        " free one. Its link is console_link and a line on standard error; needs splashdam[console]",
    )
    exit_timeout_ms: float = option(
        5_000,
        check=at_least(0, MAX_LONG),
        parse=parse_float,
        doc="How long the interpreter's exit waits for a producer that was not closed, and Ctrl-C in its"
        " `with` block for the remaining records",
    )

    # --- interceptors and batches -------------------------------------------------------------------------

    interceptors: Any = option(
        (),
        kafka="interceptor.classes",
        check=_interceptors,
        parse=_load_interceptors,
        doc="Objects that see and may replace every record, called in this order: see ProducerInterceptor",
        notes=_LISTENING,
    )
    on_batch: Any = option(
        None,
        check=_callable_or_none,
        parse=_not_as_text,
        doc="Called with a BatchMetadata for each delivered or failed batch, on the sender's thread; it must"
        " not wait",
        notes=_LISTENING,
    )

    # --- kafka-python's connection options; some have no effect here ---------------------------------------

    bootstrap_timeout_ms: float | None = option(
        None,
        check=_time_or_none,
        parse=parse_float,
        doc="How long the constructor (of the trio producer: entering its block) waits for a first broker,"
        " and raises NoBrokersAvailable. Default: it does not wait, the first send does",
        notes=_DROP_IN,
    )
    api_version: Any = option(
        None,
        check=_version_or_none,
        parse=str,
        doc="Has no effect, except that the constructor does not wait for a broker, as in kafka-python: API"
        " versions are negotiated with each broker",
        notes=_DROP_IN,
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        check=_lookup,
        doc="'use_all_dns_ips': all addresses of a name are tried, which is always so",
        notes=_DROP_IN,
    )
    proxy_url: str | None = option(
        None,
        convert=secret_or_none,
        check=_proxy_or_none,
        parse=str,
        doc="A proxy for all connections: socks5, socks5h, socks4 or http://[USER:PASSWORD@]HOST:PORT; needs"
        " splashdam[proxy]",
        notes=_DROP_IN,
    )
    selector: Any = option(
        None,
        parse=_no_class,
        doc="Has no effect: connections are driven by trio, which has its own",
        notes=_DROP_IN,
    )
    kafka_client: Any = option(
        None,
        check=_client_or_none,
        parse=_no_class,
        doc="Has no effect: connections are driven by trio",
        notes=_DROP_IN,
    )
