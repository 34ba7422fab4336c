"""kafka-python's programs run unchanged: its options, methods, attributes and errors.

They are found by introspection, so that a newer kafka-python shows what is missing.
"""

from __future__ import annotations

import inspect
import pickle
import selectors
from collections.abc import Callable
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.producer.future import FutureRecordMetadata, RecordMetadata

import splashdam.errors
from splashdam import KafkaProducer, RecordFuture
from splashdam.client.settings.rules import producer_settings
from splashdam.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from splashdam.model import values

WITHOUT_EFFECT = {
    "api_version": [(2, 8), (3, 9, 0), "2.3", "auto", None],
    "client_dns_lookup": ["use_all_dns_ips", "default"],
    "selector": [selectors.DefaultSelector, selectors.SelectSelector],
    "kafka_client": [KafkaNetClient, None],
}
"""Each says in its documentation why."""

ON_ITS_OWN = {"config", "DEFAULT_CONFIG", "DEPRECATED_CONFIGS"}
PRIVATE_TO_KAFKA_PYTHON = {"rebind"}


def test_every_option_of_kafka_python_is_an_option_here() -> None:
    """Its defaults, all of them given, are accepted, and so are ours."""
    theirs = kafka.KafkaProducer.DEFAULT_CONFIG
    assert theirs.keys() - KafkaProducer.DEFAULT_CONFIG.keys() <= {"socks5_proxy"}
    producer_settings(theirs)
    producer_settings(KafkaProducer.DEFAULT_CONFIG)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WITHOUT_EFFECT.items() for v in vs])
def test_options_without_effect_are_taken(name: str, value: Any) -> None:
    """They warn that they have no effect."""
    producer_settings({name: value})
    field = next(each for each in values_of_settings() if each.name == name)
    assert "as no effect" in field.metadata["doc"] or "always so" in field.metadata["doc"]


def values_of_settings() -> Any:
    from splashdam.client.settings.producer_settings import ProducerSettings

    return ProducerSettings.__attrs_attrs__  # type: ignore[attr-defined]  # attrs makes it


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("api_version", "new", r"api_version='new': must be a tuple of whole numbers"),
        ("api_version", (), "must be a tuple of whole numbers"),
        ("bootstrap_timeout_ms", -1, "must be at least 0"),
        ("client_dns_lookup", "resolve_canonical_bootstrap_servers_only", "give the canonical names"),
        ("client_dns_lookup", "first", "must be 'use_all_dns_ips'"),
        ("kafka_client", dict, "cannot be replaced: .*`connect`"),
        ("net", object(), "net cannot be set: .*AsyncKafkaProducer runs in your own loop"),
        ("default_api_timeout_ms", 5, "max_block_ms is how long calls wait"),
    ],
)
def test_what_cannot_be_met_is_refused_with_a_remedy(name: str, value: Any, words: str) -> None:
    """By name."""
    with pytest.raises(KafkaConfigurationError, match=words):
        producer_settings({name: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bootstrap_topics_filter": set()}, "bootstrap_topics_filter has no effect"),
        ({"sock_chunk_bytes": 4096}, "sock_chunk_bytes has no effect"),
        ({"sock_chunk_buffer_count": 1000}, "sock_chunk_buffer_count has no effect"),
    ],
)
def test_options_of_2_x_are_taken_with_a_warning(options: dict[str, Any], words: str) -> None:
    """As kafka-python's own deprecated ones."""
    with pytest.warns(DeprecationWarning, match=words):
        producer_settings(options)


def test_the_time_out_of_2_x_is_the_one_for_bootstrapping() -> None:
    """Both names together are refused."""
    with pytest.warns(DeprecationWarning, match="is now bootstrap_timeout_ms") as caught:
        settings = producer_settings({"api_version_auto_timeout_ms": 2_000})
    assert settings.bootstrap_timeout_ms == 2_000
    assert len(caught) == 1
    with pytest.raises(KafkaConfigurationError, match="an earlier name of bootstrap_timeout_ms"):
        producer_settings({"api_version_auto_timeout_ms": 2_000, "bootstrap_timeout_ms": 1})


def test_a_warning_names_the_line_that_makes_the_producer(closed_port: str) -> None:
    """That is the line to change."""
    with pytest.warns(DeprecationWarning, match="sock_chunk") as caught:
        KafkaProducer(bootstrap_servers=closed_port, sock_chunk_bytes=4096).close()  # type: ignore[call-arg]  # 2.x
    assert caught[0].filename == __file__


def test_every_method_of_kafka_python_takes_its_arguments() -> None:
    """Names, order and defaults of its parameters; ours may have more."""
    for name, theirs in public(kafka.KafkaProducer):
        if name in ON_ITS_OWN:
            continue
        ours = getattr(KafkaProducer, name)
        if callable(theirs):
            compare_parameters(name, theirs, ours)


def test_every_method_of_its_future_takes_its_arguments() -> None:
    for name, theirs in public(FutureRecordMetadata):
        if name in PRIVATE_TO_KAFKA_PYTHON:
            continue
        ours = getattr(RecordFuture, name)
        if callable(theirs):
            compare_parameters(name, theirs, ours)
    assert RecordMetadata._fields == values.RecordMetadata._fields


def public(kind: type) -> list[tuple[str, Any]]:
    return [(name, getattr(kind, name)) for name in dir(kind) if not name.startswith("_")]


def compare_parameters(name: str, theirs: Callable[..., Any], ours: Callable[..., Any]) -> None:
    positional = [
        each for each in parameters(theirs) if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"
    ]
    try:
        mine = {each.name: each for each in parameters(ours)}
    except ValueError:  # compiled, without a signature: its Python twin is looked at in the other run
        return
    order = [n for n in mine if n in {each.name for each in positional}]
    renamed = {"f": "function", "e": "error"}
    for each in positional:
        same = mine.get(each.name) or mine.get(renamed.get(each.name, ""))
        assert same is not None, (name, each.name)
        if each.default is not each.empty:
            assert same.default == each.default, (name, each.name)
    assert order == [each.name for each in positional if each.name in order], name


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


ERROR_NAMES = sorted(
    name
    for name, kind in vars(kafka.errors).items()
    if isinstance(kind, type) and issubclass(kind, kafka.errors.KafkaError)
)
OF_2_X = [
    "NoBrokersAvailable",
    "AsyncProducerQueueFull",
    "AuthenticationFailedError",
    "AuthenticationMethodNotSupported",
    "FailedPayloadsError",
    "GroupCoordinatorNotAvailableError",
    "GroupLoadInProgressError",
    "KafkaUnavailableError",
    "NotCoordinatorForGroupError",
    "ProtocolError",
    "StaleLeaderEpochCodeError",
]
BETTER_KNOWN = {"CorruptRecordError", "CorruptRecordException"}
"""Retriable here, as in Kafka."""


@pytest.mark.parametrize("name", ERROR_NAMES + OF_2_X)
def test_every_error_can_be_imported(name: str) -> None:
    """With its number, and in the place of the tree that says whether to try again."""
    ours = getattr(splashdam.errors, name)
    assert issubclass(ours, KafkaError)
    assert name in splashdam.errors.__all__
    theirs: Any = getattr(kafka.errors, name, None)
    if theirs is None:
        return
    if isinstance(getattr(theirs, "errno", None), int):
        assert ours is splashdam.errors.for_code(theirs.errno)
        assert ours.errno == theirs.errno
    if name not in BETTER_KNOWN:
        assert ours.retriable == theirs.retriable
    for base in theirs.__mro__[1:]:
        if base.__name__ in ("RetriableError", "AuthorizationError", "KafkaError"):
            assert issubclass(ours, getattr(splashdam.errors, base.__name__))


@pytest.mark.parametrize("name", ["NodeNotReadyError", "CommitFailedError", "NoError"])
def test_errors_that_nothing_raises_can_be_pickled(name: str) -> None:
    """They are classes like others."""
    error = getattr(splashdam.errors, name)("text")
    assert type(pickle.loads(pickle.dumps(error))) is type(error)
    assert splashdam.errors.for_code(0).__name__ == "NoError"


@pytest.mark.parametrize("api_version", [(0, 8), (0, 9), (0, 10), (0, 10, 2), (0, 11), (2, 3), (4, 0)])
def test_the_format_of_an_old_broker(api_version: tuple[int, ...]) -> None:
    theirs = kafka.KafkaProducer.max_usable_produce_magic(api_version)
    assert KafkaProducer.max_usable_produce_magic(api_version) == theirs


def test_the_constructor_waits_where_it_is_asked_to(tcp_cluster: Any, closed_port: str) -> None:
    """kafka-python's always does; here ``bootstrap_timeout_ms`` says so, and ``api_version`` not to."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address, bootstrap_timeout_ms=30_000) as producer:
        assert producer.bootstrap_connected()
        assert producer._core.metadata.cluster.nodes
    with pytest.raises(NoBrokersAvailable, match="no broker has answered within 50 ms: ") as caught:
        KafkaProducer(bootstrap_servers=closed_port, bootstrap_timeout_ms=50)
    assert isinstance(caught.value, KafkaTimeoutError)
    KafkaProducer(bootstrap_servers=closed_port, bootstrap_timeout_ms=60_000, api_version=(2, 8)).close()
    KafkaProducer(bootstrap_servers=closed_port).close()


async def test_the_trio_producers_block_waits_where_it_is_asked_to(cluster: Any, autojump_clock: Any) -> None:
    """If no broker answers, entering the block raises."""
    async with cluster.producer(bootstrap_timeout_ms=1_000) as producer:
        assert producer.bootstrap_connected()
    producer = cluster.producer(bootstrap_servers="nobody:1", bootstrap_timeout_ms=1_000)
    with pytest.raises(NoBrokersAvailable):
        async with producer:
            raise AssertionError
    assert producer._core.finished.opened


def test_futures_chain(tcp_cluster: Any) -> None:
    """Into kafka-python's own, done or not; nobody else settles ours."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        future, early, late = producer.send("one", b"value", b"key", [("h", b"1")]), Future(), Future()
        assert future.chain(early) is future
        metadata = future.get(timeout=300)
        future.chain(late)
        producer.flush()
        assert early.value == late.value == metadata
        assert future.args == (0, metadata.timestamp, None, 3, 5, 2)
        for settle in (future.success, future.failure):
            with pytest.raises(IllegalStateError, match="only the producer completes"):
                settle(None)  # type: ignore[arg-type]  # whatever is given


@pytest.mark.parametrize("flag", [False, True])
def test_error_on_callbacks(
    tcp_cluster: Any, flag: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Raised where the callback runs in the caller's thread; logged in any case."""
    monkeypatch.setattr(RecordFuture, "error_on_callbacks", flag)
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        future = producer.send("one", b"v")
        future.get(timeout=300)
        if flag:
            with pytest.raises(ZeroDivisionError):
                future.add_callback(lambda _metadata: 1 / 0)
        else:
            future.add_callback(lambda _metadata: 1 / 0)
        assert "a delivery callback raised" in caplog.text
        assert producer.send("one", b"w").get(timeout=300).offset == 1


def test_close_takes_null_logger(tcp_cluster: Any) -> None:
    """kafka-python's own ``__del__`` calls ``close`` with it."""
    KafkaProducer(bootstrap_servers=tcp_cluster.address).close(5, null_logger=True)
