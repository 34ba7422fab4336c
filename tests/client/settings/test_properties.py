"""Properties files: Java's format, read as Java reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from splashdam.client.settings.properties import load_properties, parse_properties
from splashdam.client.settings.rules import options_from_properties
from splashdam.model.errors import KafkaConfigurationError


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1", [("a", "1")]),
        ("a = 1\r\nb:2\rc 3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("# no\n! no\n\n   \n  a=1", [("a", "1")]),
        ("a=1\\\n  2\nb=3", [("a", "12"), ("b", "3")]),
        ("a=x\\\\\nb=3", [("a", "x\\"), ("b", "3")]),
        ("a=1\\\n# part of the value", [("a", "1# part of the value")]),
        ("a\\:b\\=c\\ d=e", [("a:b=c d", "e")]),
        ("a=\\u00e4\\t\\n\\x", [("a", "ä\t\nx")]),
        ("a=b=c:d", [("a", "b=c:d")]),
        ("a", [("a", "")]),
        ("a=1\\", [("a", "1")]),
    ],
)
def test_parse(text: str, entries: list[tuple[str, str]]) -> None:
    """Separators, comments, continued lines and escapes."""
    assert list(parse_properties(text)) == entries


def test_load_from_a_mapping_and_a_file(tmp_path: Path) -> None:
    """Both ways give the same."""
    path = tmp_path / "producer.properties"
    path.write_text("bootstrap.servers=kafka-1:9092\nlinger.ms=10\n", encoding="utf-8")
    expected = {"bootstrap.servers": "kafka-1:9092", "linger.ms": "10"}
    assert load_properties(path) == load_properties(str(path)) == load_properties(expected) == expected


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The path and the cause are named."""
    with pytest.raises(KafkaConfigurationError, match=r"missing\.properties: .*No such file"):
        load_properties(tmp_path / "missing.properties")


def test_a_property_named_twice(tmp_path: Path) -> None:
    """Java silently takes the last one; that hides a mistake."""
    path = tmp_path / "producer.properties"
    path.write_text("acks=1\nacks=all\n", encoding="utf-8")
    with pytest.raises(KafkaConfigurationError, match="names 'acks' twice"):
        load_properties(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("acks", "al", "must be all, -1, 0 or 1"),
        ("acks", "", "must be all, -1, 0 or 1"),
        ("linger.ms", "5ms", "must be a number of milliseconds"),
        ("request.timeout.ms", "", "must be a number of milliseconds"),
    ],
)
def test_a_number_that_is_none_is_not_explained_in_pythons_words(name: str, text: str, words: str) -> None:
    """'could not convert string to float' names neither unit nor choices."""
    with pytest.raises(KafkaConfigurationError, match=f"{name}='{text}': {words}"):
        options_from_properties({name: text})


def test_values_of_a_dict_for_librdkafka_need_not_be_text() -> None:
    """A number among them was an AttributeError."""
    given: dict[str, Any] = {
        "linger.ms": 7,
        "enable.idempotence": True,
        "security.protocol": "SSL",
        "ssl.truststore.location": Path("ca.pem"),
    }
    options = options_from_properties(given)
    assert options == {
        "linger_ms": 7,
        "enable_idempotence": True,
        "security_protocol": "SSL",
        "ssl_cafile": Path("ca.pem"),
    }
