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
    ],
)
def test_addresses(servers: str | list[str], expected: list[tuple[str, int]]) -> None:
    """Text or a list, names or IPv6, with or without a port; duplicates are dropped, order is kept."""
    assert parse_bootstrap_servers(servers) == expected


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
        (":9092", "is not of the form host:port"),
        ("[::1", "is not of the form host:port"),
        ("[::1]9092", "is not of the form host:port"),
        ("[::1]:", "has port ''"),
        ("kafka://a:9092", "is not of the form host:port"),
        ("a b:1", "is not of the form host:port"),
        ("a:9092:9092", "is not of the form host:port"),
        ("[a:b]:1", "is not of the form host:port"),
    ],
)
def test_what_is_no_address(servers: str | list[str], reason: str) -> None:
    """The whole option and the entry are named."""
    with pytest.raises(KafkaConfigurationError, match="bootstrap_servers=") as caught:
        parse_bootstrap_servers(servers)
    assert reason in str(caught.value)
