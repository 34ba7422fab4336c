"""librdkafka's mock cluster, driven through the shared library inside the confluent-kafka wheel.

A broker that we did not write, and one that can be told what to answer. Found through ctypes, since the
wheel's Python API offers the cluster (``test.mock.num.brokers``) but not the injection of errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

_PRODUCER = 0
_TEXT_BYTES = 512


@cache
def _library() -> ctypes.CDLL:
    confluent_kafka: ModuleType = pytest.importorskip("confluent_kafka")
    site = Path(str(confluent_kafka.__file__)).parent.parent
    found = sorted(site.glob("confluent_kafka*.libs/librdkafka*"))
    if not found:
        pytest.skip("this confluent-kafka wheel bundles no librdkafka")
    library = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class LibrdkafkaMock:
    """A running mock cluster.

    Attributes:
        bootstrap: the brokers' addresses.
    """

    def __init__(self, library: ctypes.CDLL, cluster: ctypes.c_void_p) -> None:
        self._library = library
        self._cluster = cluster
        texts = library.rd_kafka_mock_cluster_bootstraps(cluster).decode().split(",")
        self.bootstrap = tuple(
            (host, int(port)) for host, _, port in (text.rpartition(":") for text in texts)
        )

    def create_topic(self, topic: str, partitions: int) -> None:
        """Creates a topic with one replica."""
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def push_errors(self, api_key: int, *codes: int) -> None:
        """The next requests of this API are answered with these error codes, one each."""
        numbers = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api_key), ctypes.c_size_t(len(codes)), numbers
        )

    def clear_errors(self, api_key: int) -> None:
        """Forgets the errors of this API that were not answered yet."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(api_key))

    def set_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Moves a partition to another broker (ids count from 1); -1 leaves it without a leader."""
        assert (
            self._library.rd_kafka_mock_partition_set_leader(
                self._cluster, topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(node_id)
            )
            == 0
        )


@contextmanager
def librdkafka_mock(brokers: int) -> Iterator[LibrdkafkaMock]:
    """Starts a mock cluster on free ports of the loopback; skips where the wheel has no library to load."""
    library = _library()
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(configuration, b"log_level", b"2", text, ctypes.c_size_t(_TEXT_BYTES))
    handle = ctypes.c_void_p(
        library.rd_kafka_new(_PRODUCER, configuration, text, ctypes.c_size_t(_TEXT_BYTES))
    )
    assert handle.value, text.value
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(handle, brokers))
    try:
        yield LibrdkafkaMock(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(handle)
