"""The options of ``kafka-local``: Spark's names and rules, and what is refused."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path

import pytest
from support.pipeline.local_source_kit import BOOTSTRAP, batch_options, stream_options

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source import options as options_module
from splashdam.pipeline.local_source.options import includes_headers, source_options
from splashdam.pipeline.local_source.planning import Splitting
from splashdam.pipeline.local_source.positions import AtEdge, AtOffsets, AtTimestamp, AtTimestamps
from splashdam.pipeline.local_source.subscriptions import Assigned, TopicPattern, Topics
from splashdam.pipeline.options import Option

T0 = TopicPartition("t", 0)


def test_a_reader_was_told_of_a_property_of_producers() -> None:
    """A stream reads; it was "unknown producer property"."""
    with pytest.raises(KafkaConfigurationError, match="unknown client property 'foo'"):
        stream_options(**{"kafka.foo": "1"})


def test_defaults_are_those_of_sparks_connector() -> None:
    """A batch reads all there is; a stream what comes."""
    batch, stream = batch_options(), stream_options()
    chosen = batch.selection
    assert (chosen.start, chosen.end) == (AtEdge(EARLIEST), AtEdge(LATEST))
    assert stream.selection.start == AtEdge(LATEST)
    assert (chosen.fail_on_data_loss, batch.include_headers, chosen.latest_if_no_match) == (
        True,
        False,
        False,
    )
    assert (stream.max_offsets, stream.min_offsets, stream.max_trigger_delay_ms) == (None, None, 900_000)
    assert (chosen.patience.attempts, chosen.patience.interval_ms) == (3, 10)
    assert batch.config.isolation_level is IsolationLevel.READ_UNCOMMITTED


def test_trap_9_names_in_any_case() -> None:
    """Trap 9: Spark's mapping of options loses its insensitivity to case as soon as it is copied."""
    options = stream_options(maxoffsetspertrigger="5", MINOFFSETSPERTRIGGER="2", IncludeHeaders="TRUE")
    assert (options.max_offsets, options.min_offsets, options.include_headers) == (5, 2, True)


def test_unknown_options_are_refused() -> None:
    """Trap 9: with the nearest name; an option that nobody reads would be a default."""
    with pytest.raises(
        KafkaConfigurationError, match=r"'maxoffsetpertrigger'. Did you mean 'maxOffsetsPerTrigger'"
    ):
        stream_options(maxoffsetpertrigger="5")
    with pytest.raises(KafkaConfigurationError, match="unknown option 'path'"):
        includes_headers({"path": "t"})


def test_trap_11_options_that_were_lost() -> None:
    """Trap 11: CREATE TABLE … USING loses all of them; the message says so, and no default stands in."""
    with pytest.raises(KafkaConfigurationError, match="CREATE TABLE … USING loses options"):
        source_options({}, streaming=False)
    with pytest.raises(KafkaConfigurationError, match=r"kafka.bootstrap.servers is missing"):
        source_options({"subscribe": "t"}, streaming=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": " b, a,,"}, Topics(("a", "b"))),
        ({"assign": '{"t":[1,0]}'}, Assigned((T0, TopicPartition("t", 1)))),
        ({"subscribePattern": "t.*"}, TopicPattern(re.compile("t.*"))),
    ],
)
def test_subscriptions(given: dict[str, str], expected: object) -> None:
    """By name, by partition, by pattern."""
    assert source_options({**given, **BOOTSTRAP}, streaming=False).selection.subscription == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"assign": '{"t":[0]}'}, "only one of the options .* not subscribe and assign"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "cannot end at the earliest"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "t-0 starts at 5"),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'},
            "different partitions: t-0, t-1",
        ),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday': must be a whole number"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "must be one of error, latest"),
        ({"minPartitions": "0"}, "minPartitions='0': must be at least 1"),
        ({"maxRecordsPerPartition": "many"}, "must be a whole number"),
        ({"failOnDataLoss": "no"}, "must be true or false"),
        ({"subscribe": ","}, "must name at least one"),
        (
            {"kafka.auto.offset.reset": "latest"},
            "kafka.auto.offset.reset cannot be set: set the option startingOff",
        ),
        ({"kafka.key.deserializer": "x"}, "keys are read as bytes"),
        ({"kafka.value.deserializer": "x"}, "values are read as bytes"),
        ({"kafka.enable.auto.commit": "true"}, "no offsets are committed"),
        ({"kafka.interceptor.classes": "x"}, "interceptors are not called"),
        ({"kafka.isolation.level": "committed"}, "must be one of read_uncommitted, read_committed"),
    ],
)
def test_options_that_a_batch_refuses(given: dict[str, str], message: str) -> None:
    """Each with the option's name and what is wrong."""
    with pytest.raises(KafkaConfigurationError, match=message):
        batch_options(**given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    """Spark's connector ignores endingTimestamp; here all three are refused."""
    value = "5" if name == "endingTimestamp" else '{"t":{"0":5}}'
    with pytest.raises(KafkaConfigurationError, match=f"{name} is for batch queries"):
        stream_options(**{name: value})


def test_the_least_is_not_more_than_the_most() -> None:
    """Or no trigger would ever run."""
    with pytest.raises(
        KafkaConfigurationError, match="minOffsetsPerTrigger=6 is more than maxOffsetsPerTrigger=5"
    ):
        stream_options(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


def test_contradicting_options_have_an_order() -> None:
    """A time for all, then times by partition, then offsets."""
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":7}}'}
    assert batch_options(**given).selection.start == AtTimestamps({T0: 7})
    options = batch_options(
        **given, startingTimestamp="5", endingOffsets='{"t":{"0":-1}}', endingTimestamp="9"
    )
    assert (options.selection.start, options.selection.start_option) == (AtTimestamp(5), "startingTimestamp")
    assert (options.selection.end, options.selection.end_option) == (AtTimestamp(9), "endingTimestamp")
    assert batch_options(endingOffsets='{"t":{"0":-1}}').selection.end == AtOffsets({T0: LATEST})


def test_splitting() -> None:
    """As Spark's options say, for the cores of the machine."""
    options = batch_options(minPartitions="4", maxRecordsPerPartition="1000")
    assert options.splitting(2) == Splitting(4, 1000, 2)


def test_properties_of_the_client() -> None:
    """Go to the client; how long a task waits has two names."""
    given = {"kafka.isolation.level": "READ_COMMITTED", "kafkaConsumer.pollTimeoutMs": "7000"}
    config = batch_options(**given).config
    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.fetch_settings(config.isolation_level).timeout_ms == 7000


def test_options_without_effect_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A warning, as with Spark's connector, so that the same options serve both."""
    with caplog.at_level(logging.WARNING, "splashdam.pipeline"):
        batch_options(maxOffsetsPerTrigger="5", groupIdPrefix="g", **{"kafka.group.id": "g"})
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "maxOffsetsPerTrigger is ignored: it is for streams" in told
    assert "kafka.group.id" in told
    assert "groupIdPrefix has no effect" in told


def test_options_travel_to_workers() -> None:
    """Trap 15: they are pickled with their reader."""
    options = stream_options(startingOffsets='{"t":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_is_documented() -> None:
    """In the table of docs/reference/pipeline.md."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "pipeline.md").read_text()
    declared = [each.name for each in vars(options_module).values() if isinstance(each, Option)]
    assert len(declared) > 20
    assert [name for name in declared if f"`{name}`" not in page] == []
