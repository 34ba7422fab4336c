"""Kafka's key hash, against Kafka's own values."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as murmur2_of_kafka_python

from splashdam.model.errors import IllegalArgumentError

# From Kafka's ``Utils.murmur2``: key, signed value, partition of 1,000.
VECTORS = [
    (b"", 275646681, 681),
    (b"a", -1563381124, 524),
    (b"ab", 316155434, 434),
    (b"abc", 479470107, 107),
    (b"abcd", -1323649548, 100),
    (b"21", -973932308, 340),
    (b"\0", 375494588, 588),
    (b"\xff", -311467685, 963),
    (b"\xff\xfe\xfd", 998637092, 92),
    (b"\0 ", 1121897742, 742),
    (b"1234", -1614185708, 940),
    (b"foobar", -790332482, 166),
    (b"kafka", -798503068, 580),
    (b"123456789", -1822237082, 566),
    (b"giberish123456789", -1890243828, 820),
    (b"a-little-bit-long-string", -985981536, 112),
    (b"a-little-bit-longer-string", -1486304829, 819),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 677),
    (bytes.fromhex("8081828384"), -1665622439, 209),
    (bytes(range(256)), -1948347274, 374),
]


@pytest.mark.parametrize(("key", "value", "partition"), VECTORS)
def test_vectors(kernel: ModuleType, key: bytes, value: int, partition: int) -> None:
    """The value, and so the partition, is Kafka's."""
    assert kernel.murmur2(key) == value
    assert (kernel.murmur2(key) & 0x7FFFFFFF) % 1000 == partition


def test_any_bytes_like(kernel: ModuleType) -> None:
    """The type of the key does not matter, its bytes do."""
    for key in (bytearray(b"kafka"), memoryview(b"kafka"), memoryview(b"xkafkax")[1:-1]):
        assert kernel.murmur2(key) == -798503068


@pytest.mark.parametrize("key", ["kafka", None, 5, memoryview(b"kkaaffkkaa")[::2]])
def test_not_bytes(kernel: ModuleType, key: object) -> None:
    """Only contiguous bytes have a hash."""
    with pytest.raises(TypeError):
        kernel.murmur2(key)


@given(key=st.binary(max_size=100))
def test_equals_kafka_python(kernel: ModuleType, key: bytes) -> None:
    """Any key hashes as in kafka-python, which returns the value unsigned."""
    assert kernel.murmur2(key) & 0xFFFFFFFF == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_keys_that_no_java_array_holds(kernel: ModuleType) -> None:
    """Lengths are 31 bits in Kafka; beyond, there is no right answer. (Nobody reads these 2 GiB of zeros.)"""
    with pytest.raises(IllegalArgumentError, match="a key of 2147483648 bytes; at most 2147483647"):
        kernel.murmur2(bytes(1 << 31))
