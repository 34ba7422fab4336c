"""The pytest plugin, in suites of its users: pytest runs pytest."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.errors import BrokerResponseError
from splashdam.testing.topics import create_topic

pytest_plugins = ["pytester"]

PRODUCES = """
    from kafka import KafkaProducer

    def test_it(kafka_broker, kafka_topic):
        producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
        assert producer.send(kafka_topic, b"hello").get(300).offset == 0
        producer.close()
"""


QUICK = (
    "-p",
    "no:hypothesispytest",
    "-p",
    "no:pytest_cov",
    "-p",
    "no:trio",
    "-p",
    "no:timeout",
    "-p",
    "no:anyio",
)
"""A process of its own starts sooner without them."""


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The modules of the suites are imported here: those that a suite imports first are dropped after it."""
    import kafka

    with EmbeddedBroker(tmp_path_factory.mktemp("loaded"), fsync=False) as broker:
        broker.requests.start()
        create_topic(broker.bootstrap_servers, "t")
        theirs = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        theirs.send("t", b"1").get(300)
        theirs.close()
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0) as ours:
            ours.send("t", b"1", partition=0).get(300)
            broker.faults.produce(error="INVALID_RECORD")
            with pytest.raises(BrokerResponseError):
                ours.send("t", b"1").get(300)


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder for somebody's tests, in which warnings of ours would be errors."""
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\n ignore:(read|open):DeprecationWarning\n"
        "addopts = --strict-markers -p no:asyncio"
    )
    return pytester


def test_any_client_may_come(suite: pytest.Pytester) -> None:
    """kafka-python sends to the topic that was made for the test; nothing stays behind."""
    suite.makepyfile(PRODUCES)
    result = suite.runpytest("--basetemp", "kept")
    result.assert_outcomes(passed=1)
    assert list((suite.path / "kept").glob("kafka-*")) == []


def test_every_test_has_a_broker_of_its_own(suite: pytest.Pytester) -> None:
    """Empty, at another address, with the settings of its markers."""
    suite.makepyfile(
        """
        import pytest
        from splashdam import KafkaProducer

        seen = set()
        pytestmark = pytest.mark.kafka(config={"num.partitions": 2, "node.id": 7})

        five = pytest.mark.kafka(config={"num.partitions": 5})

        @pytest.mark.parametrize("partitions", [2, pytest.param(5, marks=five)])
        def test_it(kafka_broker, partitions):
            kafka_broker.requests.start()
            with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
                assert len(producer.partitions_for("t")) == partitions
                assert producer.send("t", b"1", partition=0).get(300).offset == 0
            assert {each.broker for each in kafka_broker.requests} == {7}

        @pytest.mark.kafka(partitions=4)
        def test_topic(kafka_broker, kafka_topic):
            assert kafka_topic.startswith("test_topic-")
            with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
                assert len(producer.partitions_for(kafka_topic)) == 4
        """
    )
    suite.runpytest().assert_outcomes(passed=3)


def test_cluster(suite: pytest.Pytester) -> None:
    """Several brokers, a topic that all of them keep, and faults of one of them."""
    suite.makepyfile(
        """
        import pytest
        from splashdam import KafkaProducer

        @pytest.mark.kafka(brokers=2, partitions=2)
        def test_it(kafka_cluster, kafka_topic, kafka_faults):
            fault = kafka_faults.produce(broker=2, error="NOT_LEADER_OR_FOLLOWER", times=1)
            servers = kafka_cluster.bootstrap_servers
            with KafkaProducer(bootstrap_servers=servers, retry_backoff_ms=1) as producer:
                for partition in (0, 1):
                    assert producer.send(kafka_topic, b"1", partition=partition).get(300).offset == 0
            assert fault.hits == 1
        """
    )
    suite.runpytest_subprocess(*QUICK).assert_outcomes(passed=1)


def test_faults_end_with_their_test(suite: pytest.Pytester) -> None:
    """Even those of a broker that serves a whole module, as a suite may have it."""
    suite.makepyfile(
        """
        import pytest
        from splashdam import EmbeddedBroker, KafkaProducer

        @pytest.fixture(scope="module")
        def kafka_broker(tmp_path_factory):
            with EmbeddedBroker(tmp_path_factory.mktemp("mine"), fsync=False) as broker:
                yield broker

        @pytest.mark.parametrize("turn", [1, 2])
        def test_it(kafka_broker, kafka_faults, turn):
            assert kafka_faults is kafka_broker.faults
            with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers, retries=0) as producer:
                producer.send("t", b"1").get(300)
                kafka_faults.produce(error="INVALID_RECORD")
                with pytest.raises(Exception, match="INVALID_RECORD|fault"):
                    producer.send("t", b"1").get(300)
        """
    )
    suite.runpytest().assert_outcomes(passed=2)


def test_data_of_failed_tests_are_kept(suite: pytest.Pytester) -> None:
    """The report says where, and the commands; passed tests leave nothing."""
    suite.makepyfile(PRODUCES + "        assert False\n\n    def test_good(kafka_broker): pass\n")
    result = suite.runpytest("--basetemp", "kept")
    result.assert_outcomes(passed=1, failed=1)
    said = result.stdout.str()
    (found,) = re.findall(r"splashdam dump-log --print-data (\S+)", said)
    (kept,) = (suite.path / "kept").glob("kafka-*")
    assert kept.name.startswith("kafka-test_it-")
    assert f"kept: {kept}" in said
    assert f"splashdam broker --data {kept}/broker --port 0 --console 0" in said
    pytest.importorskip("click")
    command = [sys.executable, "-m", "splashdam.cli", "dump-log", "--print-data", found]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "hello" in shown.stdout


def test_a_test_that_failed_before_its_broker_began_has_no_data_to_look_into(suite: pytest.Pytester) -> None:
    """The report once gave a command for an empty directory."""
    suite.makepyfile("import pytest\n@pytest.mark.kafka(partition=3)\ndef test_it(kafka_broker): pass")
    result = suite.runpytest("--basetemp", "kept")
    result.assert_outcomes(errors=1)
    result.stdout.no_fnmatch_line("*dump-log*")


def test_data_of_passed_tests_are_kept_with_the_option(suite: pytest.Pytester) -> None:
    """Without it they are gone."""
    suite.makepyfile("def test_it(kafka_broker): pass")
    for option, count in (("--kafka-keep-data", 1), ("-q", 0)):
        suite.runpytest(option, "--basetemp", "kept").assert_outcomes(passed=1)
        assert len(list((suite.path / "kept").glob("kafka-*"))) == count


def test_a_wrong_marker_is_an_error(suite: pytest.Pytester) -> None:
    """The error names unknown arguments."""
    suite.makepyfile(
        "import pytest\n@pytest.mark.kafka(partition=3)\ndef test_it(kafka_broker): pass",
    )
    result = suite.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*pytest.mark.kafka: *'partition'*"])


def test_a_marker_with_a_bare_number_was_ignored(suite: pytest.Pytester) -> None:
    """``kafka(5)`` says nothing of what there are five."""
    suite.makepyfile("import pytest\n@pytest.mark.kafka(5)\ndef test_it(kafka_cluster): pass")
    result = suite.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*pytest.mark.kafka: *5*"])


def test_a_broker_and_a_cluster_in_one_test_fought_over_a_directory(suite: pytest.Pytester) -> None:
    """As who copies from one to the other needs them."""
    suite.makepyfile(
        "def test_it(kafka_broker, kafka_cluster):"
        " assert kafka_broker.bootstrap_servers not in kafka_cluster.bootstrap_servers"
    )
    suite.runpytest().assert_outcomes(passed=1)


@pytest.mark.slow
def test_workers_of_xdist(suite: pytest.Pytester) -> None:
    """Several processes at once: every test has its own port and directory."""
    pytest.importorskip("xdist")
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_it(kafka_broker, kafka_topic, number):
            assert kafka_broker.bootstrap_servers
        """
    )
    suite.runpytest_subprocess("-n", "2", *QUICK).assert_outcomes(passed=8)


def test_suites_without_kafka_load_no_broker(suite: pytest.Pytester) -> None:
    """The plugin is there, and neither trio nor the broker is."""
    suite.makepyfile(
        """
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("splashdam")
            loaded = {name for name in sys.modules if name.startswith(("trio", "splashdam"))}
            assert loaded == {"splashdam", "splashdam.testing", "splashdam.testing.pytest_plugin"}
        """
    )
    suite.runpytest_subprocess(*QUICK).assert_outcomes(passed=1)
