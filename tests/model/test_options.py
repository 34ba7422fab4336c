"""Options by name: defaults, checks, Kafka's dotted names, and help for a typing error."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import at_least, from_options, from_properties, nearest_name, one_of, option


def _names(text: str) -> list[str]:
    return text.split(",")


@attrs.frozen
class Settings:
    """A small table of options."""

    linger_ms: float = option(5, doc="How long a batch waits, milliseconds.", check=at_least(0), parse=float)
    batch_size: int = option(16384, doc="Bytes of a batch.", check=at_least(0))
    acks: str = option("all", doc="Who must have the record.", check=one_of("all", "1", "0"))
    ratio: float = option(0.5, doc="A ratio.")
    enable_idempotence: bool = option(True, doc="No duplicates.")
    topics: list[str] = option([], doc="Names.", parse=_names)
    log_bytes: int = option(10, doc="Bytes.", kafka="log.segment.bytes")


def test_defaults() -> None:
    """No option given: the defaults, and lists are not shared."""
    first, second = from_options(Settings, {}, what="test"), from_options(Settings, {}, what="test")
    assert first == Settings()
    assert first.topics is not second.topics


def test_values_are_taken() -> None:
    """Options by keyword reach their field."""
    assert from_options(Settings, {"linger_ms": 0, "acks": "1"}, what="test") == Settings(
        linger_ms=0, acks="1"
    )


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [("linger", "linger_ms"), ("batchsize", "batch_size"), ("enable_idempotency", "enable_idempotence")],
)
def test_unknown_option_names_the_nearest(given_name: str, meant: str) -> None:
    """A typing error is refused with the right name in the message."""
    with pytest.raises(KafkaConfigurationError, match=f"unknown producer option '{given_name}'.*'{meant}'"):
        from_options(Settings, {given_name: 1}, what="producer")


def test_unknown_option_without_a_near_one() -> None:
    """Nothing is suggested where nothing is near."""
    with pytest.raises(KafkaConfigurationError, match=r"unknown producer option 'colour'\.$"):
        from_options(Settings, {"colour": 1}, what="producer")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("linger_ms", -1, "must be at least 0"),
        ("linger_ms", "5", "must be a number, not str"),
        ("batch_size", True, "must be a number, not bool"),
        ("acks", "2", "must be one of 'all', '1', '0'"),
    ],
)
def test_illegal_value_says_why(name: str, value: Any, problem: str) -> None:
    """The message names option, value, problem and meaning."""
    with pytest.raises(KafkaConfigurationError, match=problem) as caught:
        from_options(Settings, {name: value}, what="test")
    assert f"{name}={value!r}" in str(caught.value)
    assert attrs.fields_dict(Settings)[name].metadata["doc"] in str(caught.value)


def test_a_whole_number_of_another_type_was_refused() -> None:
    """What ``operator.index`` takes is one, numpy's numbers among others."""

    class Seven:
        def __index__(self) -> int:
            return 7

    class Many:
        def __index__(self) -> int:
            raise TypeError("an array")

    assert from_options(Settings, {"batch_size": Seven()}, what="test").batch_size == 7
    with pytest.raises(KafkaConfigurationError, match="batch_size=<Many>: must be a number, not Many"):
        from_options(Settings, {"batch_size": Many()}, what="test")


def test_properties_by_kafkas_names() -> None:
    """Dotted names and texts become keyword options of the right type."""
    properties = {
        "linger.ms": " 2.5 ",
        "batch.size": "100",
        "ratio": "0.25",
        "enable.idempotence": "False",
        "topics": "a,b",
        "log.segment.bytes": "7",
        "acks": "1",
    }
    options = from_properties(Settings, properties, what="test")
    assert options == {
        "linger_ms": 2.5,
        "batch_size": 100,
        "ratio": 0.25,
        "enable_idempotence": False,
        "topics": ["a", "b"],
        "log_bytes": 7,
        "acks": "1",
    }
    assert from_options(Settings, options, what="test").log_bytes == 7


@pytest.mark.parametrize(
    ("name", "text"), [("batch.size", "many"), ("enable.idempotence", "yes"), ("ratio", "half")]
)
def test_property_that_does_not_parse(name: str, text: str) -> None:
    """The message names the property, its text and its meaning."""
    with pytest.raises(KafkaConfigurationError, match=f"{name}='{text}'"):
        from_properties(Settings, {name: text}, what="test")


@pytest.mark.parametrize(
    ("name", "meant"), [("linger.msec", "linger.ms"), ("log.segment.byte", "log.segment.bytes")]
)
def test_unknown_property_names_the_nearest(name: str, meant: str) -> None:
    """Suggestions are in Kafka's spelling when the question was."""
    with pytest.raises(KafkaConfigurationError, match=f"Did you mean '{meant}'"):
        from_properties(Settings, {name: "1"}, what="producer")


def test_python_name_is_no_property() -> None:
    """A properties file holds Kafka's names only."""
    with pytest.raises(KafkaConfigurationError, match=r"Did you mean 'linger\.ms'"):
        from_properties(Settings, {"linger_ms": "1"}, what="producer")


def test_property_that_is_a_value_already() -> None:
    """A dict from code may hold numbers as well as texts."""
    properties: Any = {"batch.size": 5}
    assert from_properties(Settings, properties, what="test") == {"batch_size": 5}


@given(st.sampled_from([field.name for field in attrs.fields(Settings)]), st.data())
def test_one_wrong_letter_is_understood(name: str, data: st.DataObject) -> None:
    """Any name with one letter doubled leads back to itself."""
    at = data.draw(st.integers(0, len(name) - 1))
    names = [field.name for field in attrs.fields(Settings)]
    assert nearest_name(name[:at] + name[at] + name[at:], names) in ("", f" Did you mean {name!r}?")
