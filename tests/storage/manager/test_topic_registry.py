"""The files that say which topics there are: one line for each change, and a whole that takes them in."""

from __future__ import annotations

import errno
import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.manager.topic_registry import Topic, TopicRegistry

WHOLE, CHANGES = "/data/splashdam-topics.json", "/data/splashdam-topics.changes"


def registry_in(files: MemoryFiles) -> TopicRegistry:
    files.make_directory("/data")
    files.sync_directory("/")
    return TopicRegistry(files, "/data")


def topic(name: str, partitions: int = 1, **configs: str) -> Topic:
    return Topic(name, name.encode().ljust(16, b"-"), tuple(range(partitions)), configs)


def test_a_topic_more_costs_one_line_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written anew; at the end one file has it all, and the other is gone."""
    files = MemoryFiles()
    registry = registry_in(files)
    wholes: list[str] = []
    write_atomic = files.write_atomic
    monkeypatch.setattr(
        files,
        "write_atomic",
        lambda path, data, **how: (wholes.append(path), write_atomic(path, data, **how)),
    )
    sizes = []
    for number in range(300):
        before = files.size_bytes(CHANGES) or 0
        registry.put(topic(f"topic-{number:03}"))
        sizes.append((files.size_bytes(CHANGES) or 0) - before)
    assert not wholes
    assert len(set(sizes[1:])) == 1
    registry.close()
    assert wholes == [WHOLE]
    assert files.size_bytes(CHANGES) is None
    assert len(registry_in(files).topics) == 300


def test_the_registry_is_rewritten_when_changes_outgrow_it() -> None:
    """One topic whose options change for ever does not fill the disk."""
    files = MemoryFiles()
    registry = registry_in(files)
    for number in range(3_000):
        registry.put(topic("a", 1, **{"retention.ms": str(number)}))
        assert (files.size_bytes(CHANGES) or 0) < 200_000
    assert json.loads(files.read_bytes(WHOLE) or b"")["generation"] == 2
    files.crash()
    assert registry_in(files).topics["a"].configs == {"retention.ms": "2999"}


def test_a_file_of_before_the_changes_is_read() -> None:
    """It has no generation."""
    files = MemoryFiles()
    registry = registry_in(files)
    registry.put(topic("a", 2, x="1"))
    registry.close()
    content = json.loads(files.read_bytes(WHOLE) or b"")
    del content["generation"]
    files.write_atomic(WHOLE, json.dumps(content).encode())
    registry = registry_in(files)
    assert registry.topics == {"a": topic("a", 2, x="1")}
    registry.put(topic("b"))
    files.crash()
    assert set(registry_in(files).topics) == {"a", "b"}


def test_changes_of_an_earlier_whole_do_not_count() -> None:
    """The removal of their file may be lost in a power cut."""
    files = MemoryFiles()
    registry = registry_in(files)
    registry.put(topic("a"))
    stale = files.read_bytes(CHANGES) or b""
    registry.begin_deletion("a")
    registry.end_deletions()
    registry.close()
    files.write_atomic(CHANGES, stale)
    assert not registry_in(files).topics
    registry = registry_in(files)
    registry.put(topic("b"))
    files.crash()
    assert set(registry_in(files).topics) == {"b"}


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_torn_last_line_is_left_out(cut: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody was told that it counts."""
    files = MemoryFiles()
    registry = registry_in(files)
    registry.put(topic("a"))
    registry.put(topic("b"))
    data = files.read_bytes(CHANGES) or b""
    files.write_atomic(CHANGES, data[:-cut])
    registry = registry_in(files)
    assert set(registry.topics) == ({"a"} if cut > 1 else {"a", "b"})
    assert ("torn" in caplog.text) == (cut > 1)


def test_a_damaged_line_before_others_is_an_error() -> None:
    """To go on would forget topics that somebody was told of."""
    files = MemoryFiles()
    registry = registry_in(files)
    for name in "abc":
        registry.put(topic(name))
    data = files.read_bytes(CHANGES) or b""
    files.write_atomic(CHANGES, data.replace(b'"a"', b'"z"'))
    with pytest.raises(KafkaStorageError, match=r"topics\.changes is damaged in line 2 .*move this file"):
        registry_in(files)


def test_other_resources_survive() -> None:
    """Options of brokers and groups; an empty set is gone."""
    files = MemoryFiles()
    registry = registry_in(files)
    registry.put_resources({("broker", "1"): {"log.retention.ms": "5"}, ("group", "g"): {"a": "1"}})
    registry.put_resources({("group", "g"): {}})
    for _ in range(2):
        files.crash()
        assert registry_in(files).resources == {("broker", "1"): {"log.retention.ms": "5"}}


def test_a_change_that_the_disk_refuses_has_not_happened() -> None:
    """The next change writes everything."""
    files = MemoryFiles()
    registry = registry_in(files)
    registry.put(topic("a"))
    files.inject(Fault(errno.EIO, times=1))
    with pytest.raises(KafkaStorageError):
        registry.put(topic("b"))
    assert set(registry.topics) == {"a"}
    registry.put(topic("c"))
    files.crash()
    assert set(registry_in(files).topics) == {"a", "c"}


CHANGE = st.tuples(st.sampled_from(["put", "delete", "end", "keep", "close"]), st.sampled_from("abc"))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(CHANGE, max_size=12), st.integers(0, 80), st.integers(0, 2**32))
def test_a_crash_anywhere_loses_nothing_that_was_kept(
    changes: list[tuple[str, str]], fault_after: int, seed: int
) -> None:
    """Every confirmed change is there; only a last change without an answer may be missing."""
    files = MemoryFiles()
    registry = registry_in(files)
    files.inject(Fault(errno.EIO, after=fault_after))
    kept = [snapshot(registry)]
    for number, (what, name) in enumerate(changes):
        try:
            if what == "put":
                registry.put(topic(name, 1, number=str(number)))
            elif what == "delete":
                registry.begin_deletion(name)
            elif what == "end":
                registry.end_deletions()
            elif what == "keep":
                registry.put_resources({("group", name): {"number": str(number)}})
            else:
                registry.close()
        except KafkaStorageError:
            break
        kept.append(snapshot(registry))
    files.heal()
    files.crash(Random(seed))
    after = snapshot(registry_in(files))
    undecided = len(kept) <= len(changes)
    assert after == kept[-1] or undecided
    assert snapshot(registry_in(files)) == after


def snapshot(registry: TopicRegistry) -> tuple[dict[str, Topic], object, object]:
    return dict(registry.topics), dict(registry.resources), registry.deleting
