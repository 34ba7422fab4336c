"""Topics and settings that change while logs are in use: more partitions, other options, at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from splashdam.model.values import TopicPartition
from splashdam.storage.directories.scan import refuse_taken_directories
from splashdam.storage.manager.topic_registry import Topic
from splashdam.storage.settings import DirectorySettings
from splashdam.storage.turns import logged

if TYPE_CHECKING:
    from splashdam.storage.manager.log_manager import LogManager, SettingsFor


def change_topics(manager: LogManager, *topics: Topic, now_ms: int) -> None:
    """Gives topics more partitions or other options; the latter apply to their logs from now on.

    Raises:
        KafkaStorageError: the disk refuses; nothing has changed.
        Other errors: as ``settings_for``, for options that are illegal.
    """
    settings = {topic.name: manager.settings_for(topic.configs) for topic in topics}
    before = [manager.topics[topic.name] for topic in topics]
    new = [
        TopicPartition(topic.name, number)
        for topic, old in zip(topics, before, strict=True)
        for number in sorted(set(topic.partitions).difference(old.partitions))
    ]
    growing: dict[str, list[int]] = {}
    for each in new:
        growing.setdefault(each.topic, []).append(each.partition)
    coming = [
        prepared
        for name, numbers in growing.items()
        if (prepared := manager.prepared_for(manager.topics[name], numbers)) is not None
    ]
    not_made = [each for each in new if each.topic not in manager.coming]
    for directory in manager.directories.online:
        refuse_taken_directories(manager.files, directory.root, not_made)
    manager.put_topics(topics, coming)
    try:
        if new:
            manager.make_partitions(topics, now_ms, coming)
    except BaseException:
        if not _undo(manager, {topic.name: topic for topic in before}, new):
            manager.registry.restore(*before)
            manager.scattered.update(topic.name for topic in before)
            manager.wake()
        raise
    for topic, old in zip(topics, before, strict=True):
        for number in topic.partitions if topic.configs != old.configs else ():
            log = manager.logs.get(TopicPartition(topic.name, number))
            if log is not None:
                log.reconfigure(settings[topic.name])
    manager.note_flush_ms()
    manager.wake()


def undo_creation(manager: LogManager, topics: Iterable[Topic]) -> None:
    """Topics that could not be made go, for good: a full disk takes that, too.

    What a disk refuses even then is logged, and tried again by the housekeeping.
    """
    new = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    names = {each.topic for each in new}
    if not _undo(manager, dict.fromkeys(names), new):
        for name in names:
            manager.registry.forget(name)
        manager.wake()


def _undo(manager: LogManager, before: Mapping[str, Topic | None], new: list[TopicPartition]) -> bool:
    """What could not be made goes: first the directories, which a start would take for a topic's."""
    manager.abandon_logs([topic_partition for topic_partition in new if topic_partition in manager.logs])
    is_undone = False
    with logged("removing what there is of partitions that could not be made"):
        for directory in manager.directories.online:
            for topic_partition in new:
                manager.files.remove_tree(f"{directory.root}/{topic_partition}")
            manager.files.sync_directory(directory.root)
        manager.registry.take_back(before)
        is_undone = True
    return is_undone


def reconfigure(manager: LogManager, settings: DirectorySettings, settings_for: SettingsFor) -> None:
    """Other settings of the broker: those of the directory, and what stands in where topics set nothing.

    Raises:
        As ``settings_for``; nothing has changed.
    """
    for_topics = {topic.name: settings_for(topic.configs) for topic in manager.topics.values()}
    manager.settings = manager.cleaner.settings = settings
    manager.settings_for = settings_for
    for topic_partition, log in manager.logs.items():
        log.reconfigure(for_topics[topic_partition.topic])
    manager.note_flush_ms()
    manager.wake()
