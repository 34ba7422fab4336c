"""How the producers' options are read from text, and what is wrong with a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splashdam.client.serializers import DefaultSerializer
from splashdam.model.options import whole_number

JAVA_SERIALIZERS: Mapping[str, type[DefaultSerializer] | None] = {
    "StringSerializer": DefaultSerializer,
    "ByteArraySerializer": None,
    "BytesSerializer": None,
    "ByteBufferSerializer": None,
}


def java_class(text: str, known: Mapping[str, Any]) -> Any:
    """Our counterpart of a class in a Java application's properties."""
    name = text.rpartition(".")[2]
    if name not in known:
        raise ValueError(
            f"has no counterpart here (known: {', '.join(known)}); pass an object to the constructor"
        )
    kind = known[name]
    return None if kind is None else kind()


def partitioner_named(name: str) -> Any:
    """A partitioner by its Java class or its name in librdkafka.

    Raises:
        ValueError: it has no counterpart.
    """
    from splashdam.client.partitioning.hash_partitioners import BY_NAME

    return java_class(name, BY_NAME)


def parse_topic_compression(text: str) -> dict[str, str]:
    """``orders=zstd:3, metrics=lz4``"""
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
    """A check of ``topic_compression``."""
    fine = isinstance(value, Mapping) and all(
        isinstance(topic, str) and (codec is None or isinstance(codec, str)) for topic, codec in value.items()
    )
    return None if fine else "must be a dict of topic to 'codec' or 'codec:level'"


def parse_acks(text: str) -> int | str:
    """``all``, or a number."""
    if text not in ("all", "-1", "0", "1"):
        raise ValueError("must be all, -1, 0 or 1")
    return text if text == "all" else int(text)


def parse_codec(text: str) -> str | None:
    """The name of a codec, None for none."""
    return None if text == "none" else text


def accepted(convert: Any) -> Any:
    """A check that a plug-in is of a kind we can call; the conversion's own error names option and value."""

    def check(value: Any) -> str | None:
        convert(value)
        return None

    return check


_INT32_MAX = 2**31 - 1


def int32(check: Any) -> Any:
    """``check``, for a number that Kafka's protocol has in 32 bits."""

    def check_both(value: Any) -> str | None:
        problem: str | None = check(value)
        return problem or (f"must be at most {_INT32_MAX}" if value > _INT32_MAX else None)

    return check_both


def optional_whole_number(minimum: int) -> Any:
    """A check that the value is None, or an integer not below ``minimum``."""
    check = whole_number(minimum)
    return lambda value: None if value is None else check(value)


def text_or_none(value: Any) -> str | None:
    """A check of what goes into a request as text."""
    if value is not None and not isinstance(value, str):
        return f"must be str, not {type(value).__name__}"
    try:
        size_bytes = len((value or "").encode())
    except UnicodeEncodeError as error:
        return f"cannot be sent: {error}"
    return None if size_bytes < 1 << 15 else f"takes {size_bytes} bytes; the protocol has room for 32767"


def check_transactional_id(value: Any) -> str | None:
    """A check of ``transactional_id``."""
    return "must not be empty" if value == "" else text_or_none(value)


def check_socket_options(value: Any) -> str | None:
    """A check of ``socket_options``."""
    fine = isinstance(value, list | tuple) and all(
        isinstance(one, list | tuple) and len(one) == 3 for one in value
    )
    return None if fine else "must be a list of (level, option, value) as socket.setsockopt takes them"


def check_reporters(value: Any) -> str | None:
    """A check of ``metric_reporters``."""
    if not isinstance(value, list | tuple):
        return "must be a list"
    needed = ("init", "metric_change", "metric_removal", "close")
    for each in value:
        missing = [name for name in needed if not callable(getattr(each, name, None))]
        if missing:
            return f"{each!r} has no {' and no '.join(missing)}"
    return None


def parse_no_reporters(text: str) -> list[Any]:
    """Properties cannot name reporters."""
    if text:
        raise ValueError("names Java classes; pass objects to the constructor")
    return []
