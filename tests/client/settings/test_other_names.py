"""What people from other clients write: refused, with the sentence that says how it is written here."""

from __future__ import annotations

import re
import runpy
from typing import Any

import attrs
import pytest
from support.running.house_tree import ROOT

from splashdam import AsyncKafkaProducer, KafkaProducer
from splashdam.client.settings.other_names import LIBRDKAFKA, as_markdown, hint
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.errors import KafkaConfigurationError
from splashdam.model.options import kafka_name

NAMES = {field.name for field in attrs.fields(ProducerSettings)}
DOTTED = {kafka_name(field) for field in attrs.fields(ProducerSettings)}
THEIRS = [name for names in LIBRDKAFKA for name in names]


@pytest.mark.parametrize("name", THEIRS)
def test_names_of_librdkafka(name: str) -> None:
    """As an option with dots or underscores, and as a property: each is told in the right kind of name."""
    for given in {name, name.replace(".", "_")}:
        with pytest.raises(
            KafkaConfigurationError, match=f"'{re.escape(given)}' is a name of librdkafka; here"
        ):
            producer_settings({given: "x"})
    with pytest.raises(KafkaConfigurationError, match=f"'{re.escape(name)}' is a name of librdkafka; here"):
        options_from_properties({name: "x"})
    assert name not in DOTTED | NAMES


def test_what_they_are_told() -> None:
    """In Python names for the constructor, in Kafka's for properties."""
    told = "'compression.codec' is a name of librdkafka; here it is"
    assert hint("compression.codec", dotted=False) == f"{told} compression_type"
    assert hint("compression.codec", dotted=True) == f"{told} compression.type"
    assert hint("queue.buffering.max.kbytes", dotted=True).endswith(
        "here it is buffer.memory, in bytes: send waits while it is used up"
    )


def test_every_option_that_the_table_names_is_one() -> None:
    """Every name in backticks is an option, or the method or logger that the row describes."""
    others = {"metadata", "add_callback", "add_errback", "send", "metrics()", "splashdam"}
    for here in LIBRDKAFKA.values():
        assert set(re.findall(r"`([^`]+)`", here)) <= NAMES | others


def test_the_page_has_the_table() -> None:
    """``python tools/migration_page.py`` writes it anew."""
    page = runpy.run_path(str(ROOT / "tools/migration_page.py"))["PAGE"]
    assert f"\n\n{as_markdown()}\n" in page.read_text()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("linger.ms", r"those go through from_properties\(\); in Python the option is linger_ms\Z"),
        ("ssl.truststore.location", r"from_properties\(\); in Python the option is ssl_cafile\Z"),
        ("partitioner.class", r"in Python the option is partitioner\Z"),
        (
            "no.such.name",
            r"'no.such.name' is written as in properties: those go through from_properties\(\)\Z",
        ),
    ],
)
def test_dotted_names_in_the_constructor(name: str, problem: str) -> None:
    """They are Kafka's, and there is a place for them."""
    options: Any = {name: "x"}
    with pytest.raises(KafkaConfigurationError, match=problem):
        KafkaProducer(**options)


@pytest.mark.parametrize("kind", [KafkaProducer, AsyncKafkaProducer])
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            ({"bootstrap.servers": "k:9092", "linger.ms": 5, "message.timeout.ms": 9},),
            "not a dict: write NAME(bootstrap_servers=…, linger_ms=…, delivery_timeout_ms=…),"
            " or NAME.from_properties({…}) for Kafka's dotted names",
        ),
        (({"sasl.password": "s3cret"},), "write NAME(sasl_plain_password=…), or"),
        (({"bootstrap_servers": "k", "linger_ms": 5},), r"not a dict: write NAME(**options)"),
        (({},), "write NAME(bootstrap_servers=…), or NAME.from_properties({…})"),
        (({7: 1},), "write NAME(bootstrap_servers=…), or NAME.from_properties({…})"),
        ((dict.fromkeys(sorted(DOTTED), "s3cret"),), "…, …), or NAME.from_properties({…})"),
        (
            ("localhost:9092",),
            "NAME() takes keyword options only, not a str: write NAME(bootstrap_servers=…)",
        ),
        (("localhost:9092", 5), "NAME() takes keyword options only, not a str"),
    ],
)
def test_options_without_names(kind: Any, given: Any, problem: str) -> None:
    """A dict is what confluent-kafka takes. Its values are not shown: passwords are among them."""
    with pytest.raises(TypeError, match=re.escape(problem.replace("NAME", kind.__name__))) as caught:
        kind(*given)
    assert "s3cret" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_each_of_kafkas_names_is_taken_as_a_property() -> None:
    """Some names that Java does not have were refused as classes of Java."""
    for name in ("sasl.kerberos.domain.name", "sasl.kerberos.name", "sasl.oauthbearer.cafile"):
        assert options_from_properties({name: "x"}) == {name.replace(".", "_"): "x"}
    assert [name for name in DOTTED if re.search("unknown|classes of Java", told(name))] == []


def told(name: str) -> str:
    """What a property with the value 1 is told."""
    try:
        options_from_properties({name: "1"})
    except KafkaConfigurationError as error:
        return str(error)
    return ""
