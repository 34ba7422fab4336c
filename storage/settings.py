"""The options of topics (``LogSettings``) and of data directories; names, defaults and units are Kafka's.

Each option is declared once: name, type, default, check, the broker settings that are its default
(``broker``; the first one that is set counts), and, for an option without effect in this broker, the reason
(``without_effect``).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import attrs

from splashdam.model.options import MAX_INT, MAX_LONG, from_properties, one_of, option, whole_number

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

LARGEST_DOUBLE = 1.7976931348623157e308
_NOT_THROTTLED = "replication is as fast as it can be"
_THROTTLED = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")


class Synonym(NamedTuple):
    """A broker setting that is the default of a topic option.

    The option's value is its value times ``factor``.
    """

    name: str
    factor: int = 1

    def value(self, setting: Any) -> Any:
        """Return the option's value. A negative number is "no limit" in every unit; other types stay."""
        if self.factor == 1 or isinstance(setting, bool) or not isinstance(setting, int):
            return setting
        return max(-1, setting * self.factor)


def topic_option(
    default: Any,
    *broker: str | Synonym,
    doc: str,
    check: Callable[[Any], str | None] | None = None,
    without_effect: str = "",
    kind: str | None = None,
) -> Any:
    """Declare one option of a topic.

    Args:
        default: its default value.
        broker: the broker settings that are its default, in order of precedence.
        doc: meaning and unit.
        check: returns what is wrong with a value, or None.
        without_effect: why the option has no effect in this broker.
        kind: the kind of its values if their type does not tell: ``list``.
    """
    synonyms = tuple(each if isinstance(each, Synonym) else Synonym(each) for each in broker)
    notes = {"broker": synonyms, "without_effect": without_effect, **({"kind": kind} if kind else {})}
    return option(default, doc=doc, check=check, notes=notes)


def _cleanup_policy(value: Any) -> str | None:
    policies = [part.strip() for part in value.split(",")] if isinstance(value, str) else ["?"]
    return (
        None
        if set(policies) <= {"delete", "compact"} or policies == [""]
        else "must be of delete and compact"
    )


def _no_limit_or_at_least(minimum: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return None if value == -1 else whole_number(minimum)(value)

    return check


def _ratio(value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if is_number and 0 <= value <= 1 else "must be a number between 0 and 1"


def _above_zero(value: Any) -> str | None:
    return None if isinstance(value, int | float) and value > 0 else "must be above 0"


def _throttled(value: Any) -> str | None:
    is_legal = isinstance(value, str) and _THROTTLED.fullmatch(value.replace(" ", ""))
    return None if is_legal else "must be '*' or partition:broker,partition:broker,…"


def _level(lowest: int, highest: int, *more: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and (value in more or lowest <= value <= highest):
            return None
        return f"must be {lowest} to {highest}" + "".join(f" or {each}" for each in more)

    return check


@attrs.frozen
class LogSettings:
    """The options of one topic, as in Kafka's ``LogConfig``: those that the log reads, and the broker's.

    ``with_configs`` adds a topic's own values to the defaults of the broker.
    """

    segment_bytes: int = topic_option(
        1024**3,
        "log.segment.bytes",
        check=whole_number(14, MAX_INT),
        doc="Bytes a segment may have before the next one is begun",
    )
    segment_ms: int = topic_option(
        7 * DAY_MS,
        "log.roll.ms",
        Synonym("log.roll.hours", HOUR_MS),
        check=whole_number(1),
        doc="Milliseconds of record time after which a segment is closed",
    )
    segment_jitter_ms: int = topic_option(
        0,
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", HOUR_MS),
        check=whole_number(0),
        doc="Milliseconds by which segment.ms is shortened at most, by another amount for each segment",
    )
    segment_index_bytes: int = topic_option(
        10 * 1024**2,
        "log.index.size.max.bytes",
        check=whole_number(24, MAX_INT),
        doc="Bytes an index may have; a segment whose index is full is closed",
    )
    index_interval_bytes: int = topic_option(
        4096,
        "log.index.interval.bytes",
        check=whole_number(0, MAX_INT),
        doc="Bytes of log between two entries of the offset index",
    )
    max_message_bytes: int = topic_option(
        1_048_588,
        "message.max.bytes",
        check=whole_number(0, MAX_INT),
        doc="Bytes of the largest batch accepted",
    )
    cleanup_policy: str = topic_option(
        "delete",
        "log.cleanup.policy",
        check=_cleanup_policy,
        kind="list",
        doc="delete, compact, or both with a comma; compact keeps the newest record of each key, and nothing "
        "at all everything",
    )
    message_timestamp_type: str = topic_option(
        "CreateTime",
        "log.message.timestamp.type",
        check=one_of("CreateTime", "LogAppendTime"),
        doc="Whose clock stamps the records: the producer's or the broker's",
    )
    message_timestamp_before_max_ms: int = topic_option(
        MAX_LONG,
        "log.message.timestamp.before.max.ms",
        check=whole_number(0),
        doc="Milliseconds a record's timestamp may lie behind the broker's clock",
    )
    message_timestamp_after_max_ms: int = topic_option(
        HOUR_MS,
        "log.message.timestamp.after.max.ms",
        check=whole_number(0),
        doc="Milliseconds a record's timestamp may lie ahead of the broker's clock",
    )
    retention_ms: int = topic_option(
        7 * DAY_MS,
        "log.retention.ms",
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
        check=_no_limit_or_at_least(0),
        doc="Milliseconds after its largest timestamp that a segment is removed; -1 keeps it",
    )
    retention_bytes: int = topic_option(
        -1,
        "log.retention.bytes",
        check=_no_limit_or_at_least(0),
        doc="Bytes of a partition above which its oldest segments are removed; -1 is no limit",
    )
    file_delete_delay_ms: int = topic_option(
        60_000,
        "log.segment.delete.delay.ms",
        check=whole_number(0),
        doc="Milliseconds from the removal of a segment until its files are unlinked",
    )
    flush_messages: int = topic_option(
        MAX_LONG,
        "log.flush.interval.messages",
        check=whole_number(1),
        doc="Records after which the log is synced to disk, before the answer to the last of them",
    )
    flush_ms: int = topic_option(
        MAX_LONG,
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        check=whole_number(0),
        doc="Milliseconds after which the log is synced to disk",
    )
    delete_retention_ms: int = topic_option(
        DAY_MS,
        "log.cleaner.delete.retention.ms",
        check=whole_number(0),
        doc="Milliseconds a tombstone stays readable",
    )
    min_compaction_lag_ms: int = topic_option(
        0,
        "log.cleaner.min.compaction.lag.ms",
        check=whole_number(0),
        doc="Milliseconds a record stays uncompacted at least",
    )
    max_compaction_lag_ms: int = topic_option(
        MAX_LONG,
        "log.cleaner.max.compaction.lag.ms",
        check=whole_number(1),
        doc="Milliseconds until compaction is due at the latest",
    )
    min_cleanable_dirty_ratio: float = topic_option(
        0.5,
        "log.cleaner.min.cleanable.ratio",
        check=_ratio,
        doc="Share of dirty bytes that starts compaction",
    )

    compression_type: str = topic_option(
        "producer",
        "compression.type",
        check=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of stored batches; 'producer' keeps what the producer sent",
    )
    compression_gzip_level: int = topic_option(
        -1,
        "compression.gzip.level",
        check=_level(1, 9, -1),
        doc="Level for gzip, 1 to 9, -1 for its default",
    )
    compression_lz4_level: int = topic_option(
        9, "compression.lz4.level", check=_level(1, 17), doc="Level for lz4, 1 to 17"
    )
    compression_zstd_level: int = topic_option(
        3, "compression.zstd.level", check=_level(-131072, 22), doc="Level for zstd, up to 22"
    )
    min_insync_replicas: int = topic_option(
        1,
        "min.insync.replicas",
        check=whole_number(1, MAX_INT),
        doc="Replicas that must have a write before acks=all is answered; not more than there are",
    )
    preallocate: bool = topic_option(
        False,
        "log.preallocate",
        doc="Whether segment files are allocated in full",
        without_effect="files grow as they are written",
    )
    unclean_leader_election_enable: bool = topic_option(
        False,
        "unclean.leader.election.enable",
        doc="Whether a replica out of sync may lead",
    )
    remote_storage_enable: bool = topic_option(
        False,
        check=one_of(False),
        doc="Tiered storage, which is not offered",
        without_effect="there is no tiered storage",
    )
    leader_replication_throttled_replicas: str = topic_option(
        "",
        check=_throttled,
        kind="list",
        doc="Replicas whose leader side is throttled, as partition:broker separated by commas, * for all",
        without_effect=_NOT_THROTTLED,
    )
    follower_replication_throttled_replicas: str = topic_option(
        "",
        check=_throttled,
        kind="list",
        doc="Replicas whose follower side is throttled, as partition:broker separated by commas, * for all",
        without_effect=_NOT_THROTTLED,
    )

    # Cached, because each append reads them.

    @cached_property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @cached_property
    def is_deleted(self) -> bool:
        """Whether retention removes old segments, by age and size."""
        return "delete" in self.cleanup_policy

    @cached_property
    def uses_log_append_time(self) -> bool:
        """Whether records get the broker's time (LogAppendTime)."""
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def limits_timestamps(self) -> bool:
        """Whether a record may be refused for its timestamp."""
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        return not self.uses_log_append_time and min(before, after) < MAX_LONG

    @cached_property
    def looks_at_records(self) -> bool:
        """Whether the topic has rules for each record of a batch."""
        return self.is_compacted or self.limits_timestamps

    def roll_after_ms(self, log_path: str) -> int:
        """Return the age at which the segment of this path is closed: ``segment.ms`` less its jitter.

        In a compacted topic at most ``max.compaction.lag.ms``, because the active segment is never compacted.
        The jitter comes from the path: partitions that began together roll at different times, and a restart
        changes nothing. (Kafka draws a random number whenever a segment is opened.)
        """
        segment_ms = (
            min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
        )
        jitter_ms = min(self.segment_jitter_ms, segment_ms)
        return segment_ms - (zlib.crc32(log_path.encode()) % jitter_ms if jitter_ms else 0)

    def with_configs(self, configs: Mapping[str, str]) -> LogSettings:
        """Return these settings with a topic's own values, given by Kafka's dotted names.

        Raises:
            KafkaConfigurationError: a name is unknown (the text names the closest one), or a value is
                illegal.
        """
        return attrs.evolve(self, **from_properties(type(self), configs, what="topic"))


@attrs.frozen(kw_only=True)
class DirectorySettings:
    """Settings of the data directories, the same for all topics: the schedule of the housekeeping."""

    log_initial_task_delay_ms: int = option(
        30_000,
        check=whole_number(0),
        doc="Milliseconds from the start until the first turn of each task that is rarer than that",
    )
    log_flush_scheduler_interval_ms: int = option(
        MAX_LONG,
        check=whole_number(1),
        doc="Milliseconds between two searches for logs that flush.ms wants synced; without it as often as "
        "the smallest flush.ms",
    )
    log_flush_offset_checkpoint_interval_ms: int = option(
        60_000,
        check=whole_number(1, MAX_INT),
        doc="Milliseconds between two checkpoints of the recovery points",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = option(
        60_000,
        check=whole_number(1, MAX_INT),
        doc="Milliseconds between two checkpoints of the log start offsets",
    )
    replica_high_watermark_checkpoint_interval_ms: int = option(
        5_000, check=whole_number(1), doc="Milliseconds between two checkpoints of the high watermarks"
    )
    log_retention_check_interval_ms: int = option(
        300_000, check=whole_number(1), doc="Milliseconds between two searches for segments to be removed"
    )
    log_cleaner_enable: bool = option(True, doc="Whether the logs of compacted topics are compacted")
    log_cleaner_backoff_ms: int = option(
        15_000,
        check=whole_number(1),
        doc="Milliseconds between two searches of the cleaner while no log is dirty enough to be compacted",
    )
    log_cleaner_threads: int = option(
        1,
        check=whole_number(0, MAX_INT),
        doc="Logs compacted at the same time",
        notes={"without_effect": "logs are compacted one after the other, each in short turns"},
    )
    log_cleaner_dedupe_buffer_size: int = option(
        134_217_728,
        check=whole_number(48),
        doc="Bytes that the map of keys may have while a log is compacted, 24 for each key; with more keys a "
        "log is compacted in several rounds",
    )
    log_cleaner_io_buffer_load_factor: float = option(
        0.9, check=_ratio, doc="Share of the map of keys that is filled"
    )
    log_cleaner_io_buffer_size: int = option(
        524_288,
        check=whole_number(1, MAX_INT),
        doc="Bytes that the cleaner reads and writes in one turn, about",
    )
    log_cleaner_io_max_bytes_per_second: float = option(
        LARGEST_DOUBLE, check=_above_zero, doc="Bytes that the cleaner reads and writes per second at most"
    )
    producer_id_expiration_ms: int = option(
        DAY_MS,
        check=whole_number(1, MAX_INT),
        doc="Milliseconds of silence after which a producer's sequences are forgotten",
    )
    producer_id_expiration_check_interval_ms: int = option(
        600_000, check=whole_number(1), doc="Milliseconds between two searches for expired producer ids"
    )
