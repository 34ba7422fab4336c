"""The package's own names: there, lazy, and documented."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import metadata
from typing import Any

import kafka.errors
import pytest

import splashdam
from splashdam.record.kernel import IMPL


def test_importing_it_loads_next_to_nothing() -> None:
    """Neither trio, nor the broker, nor a compressor; errors and values do not bring them either."""
    script = (
        "import sys, splashdam, splashdam.errors\n"
        "splashdam.TopicPartition, splashdam.__version__, splashdam.__impl__\n"
        "heavy = {'trio', 'asyncio', 'crc32c', 'lz4', 'zstandard', 'cramjam', 'pyarrow', 'pyspark'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_producer_imports_little_beside_trio() -> None:
    """What took long to import and was of no use: the checksum's package with its command-line tool, and so
    ``importlib.metadata`` with half of ``email``; JSON, for who has JSON; the guesser of misspelt names."""
    script = (
        "import sys, trio\n"
        "before = set(sys.modules)\n"
        "from splashdam import KafkaProducer\n"
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('splashdam')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    foreign = {name.partition(".")[0] for name in done.stdout.split()}
    assert not foreign & {
        "argparse",
        "crc32c",
        "csv",
        "difflib",
        "email",
        "importlib",
        "json",
        "pkgutil",
        "zipfile",
    }


def test_a_producer_imports_what_it_uses(tcp_cluster: Any) -> None:
    """To the first record and the end: nothing of bulk, reports, metrics, security, transactions."""
    script = (
        "import sys\n"
        "from splashdam import KafkaProducer\n"
        f"producer = KafkaProducer(bootstrap_servers={tcp_cluster.address!r})\n"
        "producer.send('one', b'value').get(300)\n"
        "producer.close()\n"
        "print(*sorted(name.removeprefix('splashdam.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {
        "client.async_producer",
        "client.bulk.sending",
        "client.partitioning.hash_partitioners",
        "client.interceptors",
        "client.logs",
        "client.observing.metric_table",
        "client.observing.metrics",
        "client.observing.otel",
        "client.observing.prometheus",
        "client.settings.properties",
        "client.reports",
        "client.running.security",
        "client.settings.security_properties",
        "client.observing.telemetry",
        "client.transactions.transactions",
        "embedded_broker",
        "record.arrow",
        "record.bulk_locations",
        "model.views.producer",
        "net.sasl",
        "net.tls",
        "record.columns",
        "sender.transactions.coordination",
        "sender.telemetry.telemetry",
        "sender.transactions.manager",
    }


def test_the_command_does_not_read_its_version_before_it_is_asked() -> None:
    """``importlib.metadata``, with half of ``email``, took longer to import than click."""
    script = "import sys, splashdam.cli.broker.broker, splashdam.cli.commands; print('email' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", splashdam.__all__)
def test_every_name_is_there(name: str) -> None:
    """A second access returns the same object."""
    value = getattr(splashdam, name)
    assert value is not None
    assert getattr(splashdam, name) is value
    assert name in dir(splashdam)


def test_the_lazy_names_are_the_typed_ones() -> None:
    """What type checkers see is what the run time finds, and ``__all__`` lists it."""
    source = inspect.getsource(splashdam)
    for name in splashdam._HOMES:
        assert f"import {name} as {name}" in source
    assert set(splashdam.__all__) == {*splashdam._HOMES, "__version__", "__impl__", "errors"}
    assert splashdam.__all__ == sorted(splashdam.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="module 'splashdam' has no attribute 'KafkaConsumer'"):
        _ = splashdam.KafkaConsumer


def test_version_and_twin() -> None:
    """The version is the distribution's; the twin is the one in use."""
    assert splashdam.__version__ == metadata.version("splashdam")
    assert splashdam.__impl__ == IMPL


def test_errors_are_all_there() -> None:
    """Each class of the tree can be imported from ``splashdam.errors``."""
    from splashdam.model import broker_errors
    from splashdam.model import errors as local_errors

    for module in (local_errors, broker_errors):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, local_errors.KafkaError):
                assert getattr(splashdam.errors, name) is value
    assert splashdam.errors.for_code(10) is splashdam.errors.MessageTooLargeError


def test_kafka_pythons_other_names_catch_the_same_errors() -> None:
    """``except MessageSizeTooLargeError`` of a program for kafka-python goes on working."""
    theirs = {
        name: int(kind.errno)
        for name, kind in vars(kafka.errors).items()
        if isinstance(kind, type) and isinstance(getattr(kind, "errno", None), int) and kind.errno != 0
    }
    ours = {splashdam.errors.for_code(code).__name__ for code in theirs.values()} & set(
        splashdam.errors.__all__
    )
    other = {name: code for name, code in theirs.items() if splashdam.errors.for_code(code).__name__ in ours}
    assert {
        "MessageSizeTooLargeError",
        "NotLeaderForPartitionError",
        "CorruptRecordException",
    } <= other.keys()
    for name, code in other.items():
        assert getattr(splashdam.errors, name) is splashdam.errors.for_code(code)
        assert name in splashdam.errors.__all__
