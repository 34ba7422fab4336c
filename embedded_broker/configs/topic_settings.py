"""Every option of a topic: the log's own, and those that concern codecs and replication.

Kafka's documentation ("topic configs") says what each means; ``table.py`` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs

from splashdam.model.options import MAX_INT, one_of, whole_number
from splashdam.storage.settings import LogSettings, topic_option

_NOT_THROTTLED = "replication is as fast as it can be"
_THROTTLED = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")


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
class TopicSettings(LogSettings):
    """The options of one topic."""

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
