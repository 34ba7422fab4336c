"""Serializers, headers and topic names: what is accepted, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from splashdam.client.sending.arguments import check_topic_name, header_pairs
from splashdam.client.serializers import DefaultSerializer, JsonSerializer, Serializer, serialize_function
from splashdam.model.errors import KafkaConfigurationError


def test_default_serializer() -> None:
    """Text is encoded, bytes-like values and None pass."""
    serializer = DefaultSerializer()
    assert serializer.serialize("t", [], "ä") == b"\xc3\xa4"
    assert DefaultSerializer("latin-1").serialize("t", [], "ä") == b"\xe4"
    for data in (b"x", bytearray(b"x"), memoryview(b"x"), None):
        assert serializer.serialize("t", [], data) is data


def test_json_serializer() -> None:
    """None stays null, so that a tombstone can be sent."""
    assert JsonSerializer().serialize("t", [], {"a": [1, None]}) == b'{"a": [1, null]}'
    assert JsonSerializer().serialize("t", [], None) is None


def test_serializers_agree_with_kafka_python() -> None:
    """The two that both have give the same bytes."""
    theirs = pytest.importorskip("kafka.serializer")
    for data in ("text", "ünïcode", b"bytes", None):
        assert DefaultSerializer().serialize("t", [], data) == theirs.DefaultSerializer().serialize(
            "t", [], data
        )
    for data in ({"a": 1}, [1.5, "x"], "text", None):
        assert JsonSerializer().serialize("t", [], data) == theirs.JsonSerializer().serialize("t", [], data)


class OldStyle:
    """kafka-python 2.x's signature."""

    def serialize(self, topic: str, data: Any) -> bytes:
        return f"{topic}:{data}".encode()


class Registering(Serializer):
    """Adds a header, as a schema registry's serializer does."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> bytes:
        headers.append(("schema", b"7"))
        return str(data).encode()


@pytest.mark.parametrize(
    ("serializer", "expected"),
    [
        (lambda data: data.upper(), b"X"),
        (bytes.upper, b"X"),
        (OldStyle(), b"t:b'x'"),
        (Registering(), b"b'x'"),
        (DefaultSerializer(), b"x"),
    ],
)
def test_accepted_kinds(serializer: Any, expected: bytes) -> None:
    """Functions, two generations of kafka-python's interface, and ours."""
    function = serialize_function(serializer, "key_serializer")
    assert function is not None
    assert function("t", [], b"x") == expected


def test_no_serializer_is_no_function() -> None:
    """So that the hot path can skip it."""
    assert serialize_function(None, "key_serializer") is None


def test_anything_else_is_refused_by_name() -> None:
    """The option is in the message."""
    with pytest.raises(KafkaConfigurationError, match="value_serializer='json'"):
        serialize_function("json", "value_serializer")


def test_a_serializers_type_error_is_its_own() -> None:
    """It is called once, and its error is not taken for a wrong signature."""
    calls = []

    class Strict(Serializer):
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            calls.append(data)
            raise TypeError("only numbers")

    function = serialize_function(Strict(), "value_serializer")
    assert function is not None
    with pytest.raises(TypeError, match="only numbers"):
        function("t", [], b"x")
    assert calls == [b"x"]


@pytest.mark.parametrize(
    ("headers", "pairs"),
    [
        (None, []),
        ([], []),
        ([("a", b"1"), ("a", None)], [("a", b"1"), ("a", None)]),
        ((["a", bytearray(b"1")],), [("a", b"1")]),
        ({"a": memoryview(b"1"), "b": None}, [("a", b"1"), ("b", None)]),
    ],
)
def test_headers(headers: Any, pairs: list[tuple[str, bytes | None]]) -> None:
    """Lists, tuples and dicts; null and bytes-like values; repeated keys."""
    assert header_pairs(headers) == pairs


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ("ab", "not str"),
        ({"a"}, "not set"),
        ([("a",)], r"\('a',\) is not a pair"),
        (["ab"], "'ab' is not a pair"),
        ([(b"a", b"1")], "the key b'a' is not a str"),
        ([("a", "1")], "the value of 'a' is str"),
        ({"a": 1}, "the value of 'a' is int"),
    ],
)
def test_wrong_headers_name_the_entry(headers: Any, words: str) -> None:
    """A TypeError that says which entry, and what was wanted."""
    with pytest.raises(TypeError, match=words):
        header_pairs(headers)


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_topic_names(topic: str) -> None:
    """Kafka's rule."""
    assert check_topic_name(topic) == topic


@pytest.mark.parametrize("topic", ["", ".", "..", "x" * 250, "a b", "ä", "a\n", "a/b"])
def test_illegal_topic_names(topic: str) -> None:
    """Kafka's rule, the other way."""
    with pytest.raises(ValueError, match="not a legal topic name"):
        check_topic_name(topic)


def test_a_topic_is_text() -> None:
    """As kafka-python has it."""
    with pytest.raises(TypeError, match="topic must be str, not bytes"):
        check_topic_name(b"orders")
