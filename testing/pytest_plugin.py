"""The pytest plugin: ``kafka_broker``, ``kafka_cluster``, ``kafka_topic`` and ``kafka_faults`` as fixtures.

pytest imports this module in every suite of an environment that has splashdam, so it imports nothing but
pytest. The first test that uses a fixture imports the broker.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster
    from splashdam.testing.faults.faults import Faults

_KEEP = "--kafka-keep-data"
_LONGEST_NAME = 60
_MOST_COMMANDS = 10
_MARKER = (
    "kafka(brokers=3, partitions=1, config={}): number of brokers of kafka_cluster, number of partitions of "
    "kafka_topic, and settings by Kafka's names. Of several markers the nearest counts, setting by setting."
)

_FOR_TESTS: Mapping[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Settings that differ from Kafka's defaults: a group does not wait three seconds for more members."""

_data_key = pytest.StashKey[list[Path]]()
_failed_key = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kafka-keep-data``."""
    group = parser.getgroup("kafka", "splashdam's Kafka brokers")
    text = "keep the data directories of tests that passed, too; those of failed tests are always kept"
    group.addoption(_KEEP, action="store_true", default=False, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


_KEEPER = "splashdam-data-keeper"


class _DataKeeper:
    """Note which tests failed, and add the path of their data to their reports."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            item.stash[_failed_key] = True
            for path in item.stash.get(_data_key, []):
                # The directory is empty if the test failed before its broker started.
                if next(path.iterdir(), None) is not None:
                    report.sections.append(("kafka data", _how_to_look(path)))
        return report


def _how_to_look(path: Path) -> str:
    """Return the commands that show what a test has left: the page, and the records of each partition."""
    found = sorted(log.parent for log in path.rglob("*.log") if log.stat().st_size)
    own = [each for each in found if not each.name.startswith("__")]
    broker = path / "broker"
    page = [f"splashdam broker --data {broker} --port 0 --console 0"] if broker.exists() else []
    dumps = [f"splashdam dump-log --print-data {each}" for each in dict.fromkeys(own or found or [path])]
    return "\n".join([f"kept: {path}", *page, *dumps[:_MOST_COMMANDS]])


class _Wanted:
    """The values of the ``kafka`` markers; for each setting the nearest marker counts."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.brokers = 3
        self.partitions = 1
        self.config: dict[str, Any] = dict(_FOR_TESTS)
        for marker in reversed(list(request.node.iter_markers("kafka"))):
            unknown = [*marker.args, *sorted(marker.kwargs.keys() - {"brokers", "partitions", "config"})]
            if unknown:
                pytest.fail(f"@pytest.mark.kafka: unknown argument {unknown}; use {_MARKER}", pytrace=False)
            self.brokers = marker.kwargs.get("brokers", self.brokers)
            self.partitions = marker.kwargs.get("partitions", self.partitions)
            self.config.update(marker.kwargs.get("config", {}))


@pytest.fixture
def _kafka_directory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    # The hook runs for every test of the suite, so it is registered once it has something to do.
    if not request.config.pluginmanager.has_plugin(_KEEPER):
        request.config.pluginmanager.register(_DataKeeper(), _KEEPER)
    name = re.sub(r"\W+", "-", request.node.name)[:_LONGEST_NAME].strip("-")
    # Not numbered: pytest would count the directories there for each test, in suites of thousands a slow
    # step.
    path = tmp_path_factory.mktemp(f"kafka-{name}-{uuid.uuid4().hex[:8]}", numbered=False)
    request.node.stash.setdefault(_data_key, []).append(path)
    yield path
    if not (request.node.stash.get(_failed_key, False) or request.config.getoption(_KEEP)):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest, _kafka_directory: Path) -> Iterator[EmbeddedBroker]:
    """A Kafka broker for this test alone, on TCP, for any client: ``kafka_broker.bootstrap_servers``.

    It starts empty within two milliseconds and is gone after the test. ``@pytest.mark.kafka(config={…})``
    sets Kafka's settings, such as ``"num.partitions": 6``; faults, request log and clock are attributes of
    the broker.
    """
    from splashdam.embedded_broker.embedded import EmbeddedBroker

    with EmbeddedBroker(_kafka_directory / "broker", fsync=False, config=_Wanted(request).config) as broker:
        yield broker


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, _kafka_directory: Path) -> Iterator[EmbeddedCluster]:
    """Three brokers for this test alone, or as many as ``@pytest.mark.kafka(brokers=5)`` says."""
    from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster

    wanted = _Wanted(request)
    with EmbeddedCluster(
        _kafka_directory / "cluster", brokers=wanted.brokers, fsync=False, config=wanted.config
    ) as cluster:
        yield cluster


@pytest.fixture
def _kafka(request: pytest.FixtureRequest) -> Any:
    """The cluster if the test asks for ``kafka_cluster``, else the broker."""
    asked = "kafka_cluster" if "kafka_cluster" in request.fixturenames else "kafka_broker"
    return request.getfixturevalue(asked)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, _kafka: Any) -> str:
    """The name of a new topic, in ``kafka_cluster`` if the test asks for that, else in ``kafka_broker``.

    It has one partition, or as many as ``@pytest.mark.kafka(partitions=4)`` says, and as many replicas as
    there are brokers, at most three.
    """
    from splashdam.testing.topics import create_topic

    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_LONGEST_NAME].strip("-")
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    create_topic(_kafka.bootstrap_servers, topic, _Wanted(request).partitions)
    return topic


@pytest.fixture
def kafka_faults(_kafka: Any) -> Iterator[Faults]:
    """The faults of ``kafka_cluster`` if the test asks for that, else of ``kafka_broker``."""
    faults: Faults = _kafka.faults
    yield faults
    faults.clear()
