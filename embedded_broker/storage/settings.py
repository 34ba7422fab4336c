"""What can be set for one log. Names, defaults and units are those of Kafka's topic configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from splashdam.model.options import at_least, from_properties, one_of, option

MAX_LONG = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1000


def _cleanup_policy(value: str) -> str | None:
    policies = [part.strip() for part in value.split(",")]
    return None if set(policies) <= {"delete", "compact"} else "must be of delete and compact"


@attrs.frozen
class LogSettings:
    """Options of one topic's logs; a topic's own values are laid over the broker's by ``with_configs``."""

    segment_bytes: int = option(
        1024**3, check=at_least(14), doc="Bytes a segment may have before the next one is begun"
    )
    segment_ms: int = option(
        7 * DAY_MS, check=at_least(1), doc="Milliseconds of record time after which a segment is closed"
    )
    segment_index_bytes: int = option(
        10 * 1024**2,
        check=at_least(24),
        doc="Bytes an index may have; a segment whose index is full is closed",
    )
    index_interval_bytes: int = option(
        4096, check=at_least(0), doc="Bytes of log between two entries of the offset index"
    )
    max_message_bytes: int = option(1_048_588, check=at_least(0), doc="Bytes of the largest batch accepted")
    cleanup_policy: str = option(
        "delete", check=_cleanup_policy, doc="delete, compact, or both with a comma; compact demands keys"
    )
    message_timestamp_type: str = option(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        doc="Whose clock stamps the records: the producer's or the broker's",
    )
    message_timestamp_before_max_ms: int = option(
        MAX_LONG, check=at_least(0), doc="Milliseconds a record's timestamp may lie behind the broker's clock"
    )
    message_timestamp_after_max_ms: int = option(
        MAX_LONG,
        check=at_least(0),
        doc="Milliseconds a record's timestamp may lie ahead of the broker's clock",
    )

    # Asked of every append, hence cached.

    @cached_property
    def is_compacted(self) -> bool:
        """Whether records are kept by key, so that every record needs one."""
        return "compact" in self.cleanup_policy

    @cached_property
    def uses_log_append_time(self) -> bool:
        """Whether the broker's clock stamps the records."""
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def limits_timestamps(self) -> bool:
        """Whether a record may be refused for its timestamp."""
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        return not self.uses_log_append_time and min(before, after) < MAX_LONG

    @cached_property
    def looks_at_records(self) -> bool:
        """Whether a batch can only be accepted after a look at each of its records."""
        return self.is_compacted or self.limits_timestamps

    def with_configs(self, configs: Mapping[str, str]) -> LogSettings:
        """These settings with a topic's own values, by Kafka's dotted names, laid over them.

        Raises:
            KafkaConfigurationError: a name is unknown (the nearest right one is named) or a value is illegal.
        """
        return attrs.evolve(self, **from_properties(type(self), configs, what="topic"))
