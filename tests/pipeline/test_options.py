"""Options of data sources: declared, parsed, or refused."""

from __future__ import annotations

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline import options as kinds
from splashdam.pipeline.options import REQUIRED, Option, OptionParser

SUBSCRIBE = Option("subscribe", kinds.comma_list, REQUIRED)
MOST = Option("maxOffsetsPerTrigger", kinds.integer(), None)
STRICT = Option("failOnDataLoss", kinds.boolean, True)
DELAY_MS = Option("maxTriggerDelay", kinds.time_ms, 900_000)
STRATEGY = Option("strategy", kinds.one_of("error", "latest"), "error")
OFFSETS = Option("startingOffsets", kinds.json_object, {})
PARSER = OptionParser("kafka-local", [SUBSCRIBE, MOST, STRICT, DELAY_MS, STRATEGY, OFFSETS])


def test_values_and_defaults() -> None:
    """Trap 9: names are compared without regard to case, as Spark hands them over."""
    options = PARSER.parse({"subscribe": "a, b,a", "maxoffsetspertrigger": "7", "FAILONDATALOSS": "False"})
    assert options[SUBSCRIBE] == ("a", "b")
    assert options[MOST] == 7
    assert options[STRICT] is False
    assert options[DELAY_MS] == 900_000
    assert options.is_given(STRICT)
    assert not options.is_given(DELAY_MS)


def test_sparks_own_dictionary() -> None:
    """Trap 9: what Spark's case-insensitive dictionary holds is all found."""
    datasource = pytest.importorskip("pyspark.sql.datasource", reason="needs splashdam[spark]")
    given = datasource.CaseInsensitiveDict({"Subscribe": "a", "maxOffsetsPerTrigger": "3"})
    options = PARSER.parse(given)
    assert (options[SUBSCRIBE], options[MOST]) == (("a",), 3)


def test_kafka_properties_are_collected() -> None:
    """They lose their prefix and are nobody's option."""
    options = PARSER.parse({"subscribe": "a", "kafka.bootstrap.servers": "h:1", "Kafka.client.id": "me"})
    assert options.kafka == {"bootstrap.servers": "h:1", "client.id": "me"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"subscribe": "a", "startingofset": "{}"}, "unknown option 'startingofset'. .*'startingOffsets'"),
        ({}, "option 'subscribe' is missing. CREATE TABLE"),
        ({"subscribe": " , "}, "subscribe=' , ': must name at least one"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': must be at least 1"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "9" * 30}, "must be at most 9223372036854775807"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "9" * 5000}, "='9{200}…': "),
        ({"subscribe": "a", "maxTriggerDelay": "9" * 30 + "d"}, "must be at most"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "1_0"}, "must be a whole number"),
        ({"subscribe": "a", "failOnDataLoss": "yes"}, "must be true or false"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "must be a time such as"),
        ({"subscribe": "a", "strategy": "newest"}, "must be one of error, latest"),
        ({"subscribe": "a", "startingOffsets": "[1]"}, "must be a JSON object"),
        ({"subscribe": "a", "startingOffsets": '{"a":1,"a":2}'}, "names something twice"),
        ({"subscribe": "a", "startingOffsets": "{"}, "must be JSON"),
        ({"subscribe": "a", "Subscribe": "b"}, "is given twice"),
    ],
)
def test_refused(given: dict[str, str], complaint: str) -> None:
    """Traps 9 and 11: nothing is ignored, nothing required becomes a default."""
    with pytest.raises(KafkaConfigurationError, match=complaint):
        PARSER.parse(given)


def test_without_kafka_properties() -> None:
    """A source without a cluster refuses them."""
    with pytest.raises(KafkaConfigurationError, match=r"kafka-log: unknown option 'kafka\.acks'"):
        OptionParser("kafka-log", [], takes_kafka=False).parse({"kafka.acks": "1"})


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("10 s", 10_000), ("250ms", 250), ("250", 250), ("1h", 3_600_000)]
)
def test_times(text: str, ms: int) -> None:
    """Spark's way to write a time."""
    assert kinds.time_ms(text) == ms


def test_words_come_back_as_declared() -> None:
    """Whatever their case was."""
    assert kinds.one_of("error", "latest")("LATEST") == "latest"
