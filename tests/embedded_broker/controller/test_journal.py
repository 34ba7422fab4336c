"""What a controller keeps on disk: it comes back as it was, and damage is told."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashdam.embedded_broker.controller.journal import CHANGES_NAME, FILE_NAME, Journal, decode_change
from splashdam.embedded_broker.controller.state import (
    BrokerState,
    ClusterChange,
    ClusterState,
    PartitionState,
    Resource,
)
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.change_log import ChangeLog
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.manager.topic_registry import Topic

nodes = st.lists(st.integers(0, 5), unique=True, max_size=3).map(tuple)
numbers = st.integers(-1, 5)
partition_states = st.builds(PartitionState, nodes, nodes, numbers, numbers, numbers, nodes, nodes)
addresses = st.builds(Address, st.text(max_size=5), st.integers(0, 65_535))
brokers = st.builds(
    BrokerState,
    st.integers(0, 5),
    numbers,
    st.dictionaries(st.sampled_from(["A", "B"]), addresses, max_size=2),
    st.booleans(),
    st.booleans(),
    st.none() | st.text(max_size=3),
)
options = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2)
topics = st.sampled_from(["t", "u"]).map(lambda name: Topic(name, name.encode() * 16, (0, 1), {"a": name}))
changes = st.builds(
    ClusterChange,
    topics=st.lists(topics).map(lambda each: {topic.name: topic for topic in each}),
    partitions=st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 1)),
        partition_states,
        max_size=2,
    ),
    brokers=st.lists(brokers, max_size=2).map(lambda each: {broker.node_id: broker for broker in each}),
    resources=st.dictionaries(st.builds(Resource, st.text(max_size=3), st.text(max_size=3)), options),
)


def disk() -> MemoryFiles:
    """One with the directory."""
    files = MemoryFiles()
    files.make_directory("/c")
    return files


@settings(max_examples=30, deadline=None)
@given(st.lists(changes, max_size=5), st.integers(0, 5))
def test_kept_changes_are_read_back(kept: list[ClusterChange], restart_at: int) -> None:
    """Whenever it is read, and read again."""
    files, state = disk(), ClusterState()
    journal = Journal(files, "/c")
    journal.read()
    for number, change in enumerate(kept):
        if number == restart_at:
            journal.close()
            journal = Journal(files, "/c")
            assert journal.read().as_change() == state.as_change()
        journal.keep(change, state)
        state.apply(change)
    journal.close()
    for _ in range(2):
        assert Journal(files, "/c").read().as_change() == state.as_change()


def test_a_change_that_the_disk_refused_has_not_happened() -> None:
    """The next one that it takes is kept, and what stood before."""
    files, state = disk(), ClusterState()
    journal = Journal(files, "/c")
    first, second, third = (
        ClusterChange(resources={Resource("kind", name): {"is": name}}) for name in ("1", "2", "3")
    )
    journal.keep(first, state)
    state.apply(first)
    files.inject(Fault(errno.EIO))
    with pytest.raises(KafkaStorageError):
        journal.keep(second, state)
    files.heal()
    journal.keep(third, state)
    state.apply(third)
    journal.close()
    assert Journal(files, "/c").read().as_change() == state.as_change()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"version":2,"generation":0}', b'{"version":1}'])
def test_a_damaged_file_is_told(content: bytes) -> None:
    """By its name, with what to do."""
    files = disk()
    files.write_atomic(f"/c/{FILE_NAME}", content)
    with pytest.raises(KafkaStorageError, match=f"/c/{FILE_NAME}.*move this file away"):
        Journal(files, "/c").read()


def test_a_senseless_change_is_reported() -> None:
    """Its file is named, too."""
    files = disk()
    journal = Journal(files, "/c")
    journal.keep(ClusterChange(brokers={1: BrokerState(1, 1)}), ClusterState())
    journal.close()
    log = ChangeLog(files, f"/c/{CHANGES_NAME}")
    log.read(0)
    log.append({"partitions": {"t": {"0": [1]}}})
    log.close()
    with pytest.raises(KafkaStorageError, match=CHANGES_NAME):
        Journal(files, "/c").read()


def test_a_broker_of_an_older_journal_has_no_rack() -> None:
    """Its line ends before the rack."""
    change = decode_change({"brokers": [[1, 4, {"A": ["h", 9]}, True, False]]})
    assert change.brokers == {1: BrokerState(1, 4, {"A": Address("h", 9)}, is_fenced=True)}
