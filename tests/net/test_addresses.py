"""Reading bootstrap_servers."""

from __future__ import annotations

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.addresses import parse_bootstrap_servers


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("localhost:1234", [("localhost", 1234)]),
        (" a:1 , b ,", [("a", 1), ("b", 9092)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        (("a",), [("a", 9092)]),
        ("[::1]:1234", [("::1", 1234)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 9092)]),
        ("a:1,a:1,b:2,a:1", [("a", 1), ("b", 2)]),
        ("a:65535", [("a", 65535)]),
        ("kafka_1.my-net:1", [("kafka_1.my-net", 1)]),  # Docker Compose's names
        ("bücher.example:1", [("bücher.example", 1)]),
        ("ブローカー。例え:1", [("ブローカー。例え", 1)]),
        ("[fe80::1%eth0]:1", [("fe80::1%eth0", 1)]),
        ("embedded", [("embedded", 9092)]),
    ],
)
def test_addresses(servers: str | list[str], expected: list[tuple[str, int]]) -> None:
    """Text or a list, names or IPv6, with or without a port; duplicates are dropped, order is kept."""
    assert parse_bootstrap_servers(servers) == expected


@pytest.mark.parametrize("letter", [*map(chr, range(0x80)), "\x80", "ü", "ー", "\U0010ffff"])
def test_characters_of_a_host_name(letter: str) -> None:
    """Letters, digits, dots, hyphens and underscores of ASCII, and whatever other scripts have."""
    if letter.isalnum() or letter in "._-" or not letter.isascii():
        assert parse_bootstrap_servers([f"a{letter}b:1"]) == [(f"a{letter}b", 1)]
    else:
        with pytest.raises(KafkaConfigurationError, match=r"bootstrap_servers="):
            parse_bootstrap_servers([f"a{letter}b:1"])


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("", ": no address"),
        ([], ": no address"),
        (None, "must be a str or a list of str"),
        (9092, "must be a str or a list of str"),
        ([("a", 1)], "must be a str or a list of str"),
        ([b"a:1"], "must be a str or a list of str"),
        (" , ", ": no address"),
        ("a:b", "has port 'b'"),
        ("a:0", "has port '0'"),
        ("a:65536", "has port '65536'"),
        ("a:", "has port ''"),
        ("a:-1", "has port '-1'"),
        ("a:²", "has port '²'"),
        ("a:" + "9" * 5000, "which is not a number from 1 to 65535"),  # more digits than int takes
        (":9092", "is not of the form HOST:PORT"),
        ("[::1", "is not of the form HOST:PORT"),
        ("[::1]9092", "is not of the form HOST:PORT"),
        ("[::1]:", "has port ''"),
        ("kafka://a:9092", "is not of the form HOST:PORT"),
        ("a b:1", "is not of the form HOST:PORT"),
        ("a:9092:9092", "is not of the form HOST:PORT"),
        ("[a:b]:1", "is not of the form HOST:PORT"),
        ("[::1/64]:1", "is not of the form HOST:PORT"),
        ("fe80::1%eth0 b", "is not of the form HOST:PORT"),
        ("fe80::1%", "is not of the form HOST:PORT"),
    ],
)
def test_what_is_no_address(servers: str | list[str], reason: str) -> None:
    """The whole option and the entry are named."""
    with pytest.raises(KafkaConfigurationError, match="bootstrap_servers=") as caught:
        parse_bootstrap_servers(servers)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("servers", "entry", "letter"),
    [
        ("localhost;9092", "localhost;9092", ";"),
        ("a:1;b:2", "a:1;b:2", ""),
        ("a:1,b;2", "b;2", ";"),
        (["a,b"], "a,b", ","),
        ("user@a:1", "user@a:1", "@"),
        ("$HOST:9092", "$HOST:9092", "$"),
        ("a|b", "a|b", "|"),
        ("a\tb:1", "a\tb:1", "\t"),
        ("a\0:1", "a\0:1", "\0"),
        ("a%eth0:1", "a%eth0:1", "%"),
    ],
)
def test_a_host_with_a_semicolon_was_looked_up(servers: str | list[str], entry: str, letter: str) -> None:
    """The name was accepted, and the first connection failed. The entry and the right form are named."""
    with pytest.raises(KafkaConfigurationError) as caught:
        parse_bootstrap_servers(servers)
    text = str(caught.value)
    assert f"{entry!r} " in text
    assert (repr(letter) if letter else entry) in text
    assert "is not of the form HOST:PORT[,HOST:PORT]" in text


@pytest.mark.parametrize("scheme", ["embeded", "embedd", "Embedded", "imbedded", "embed"])
@pytest.mark.parametrize("directory", ["./data", "/data", "a/b:c"])
def test_a_misspelled_embedded_address_had_no_hint(scheme: str, directory: str) -> None:
    """It was told that ./data is no port."""
    with pytest.raises(KafkaConfigurationError, match=f"Did you mean 'embedded:{directory}'"):
        parse_bootstrap_servers(f"{scheme}:{directory}")


@pytest.mark.parametrize("servers", ["kafka:./data", "a:0", "embedded:./data", ":1"])
def test_other_mistakes_have_no_hint_at_embedded(servers: str) -> None:
    """Where nothing looks like it, or it is spelled right."""
    with pytest.raises(KafkaConfigurationError) as caught:
        parse_bootstrap_servers(servers)
    assert "Did you mean" not in str(caught.value)
