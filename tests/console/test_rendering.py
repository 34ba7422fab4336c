"""How pages write numbers."""

from __future__ import annotations

import pytest

from splashdam.console.rendering import counted, setting_in_words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7 d"),
        ("retention.ms", "-1", "no limit"),
        ("log.retention.bytes", "-1", "no limit"),
        ("max.compaction.lag.ms", "9223372036854775807", "no limit"),
        ("log.cleaner.backoff.ms", "90000", "1.5 min"),
        ("replica.lag.time.max.ms", "30000", "30 s"),
        ("segment.ms", "9223372036854775806", "106\u202f751\u202f991\u202f167.3 d"),
        ("segment.bytes", "1073741824", "1.0 GiB"),
        ("index.interval.bytes", "500", ""),
        ("min.compaction.lag.ms", "0", ""),
        ("queued.max.request.bytes", "-1", ""),
        ("num.partitions", "100000", ""),
        ("cleanup.policy", "compact", ""),
        ("message.timestamp.type", "", ""),
        ("retention.ms", "\u0667\u0660\u0660\u0660", ""),
    ],
)
def test_a_setting_is_put_in_words_where_its_number_is_long(name: str, value: str, words: str) -> None:
    """``604800000`` is hard to read; a -1 that may mean something else is left alone."""
    assert setting_in_words(value, name) == words


def test_one_of_something_is_not_a_plural() -> None:
    """Pages said ``1 records`` and ``in 1 partitions``."""
    assert [counted(number, "record") for number in (0, 1, 2, 1_000)] == [
        "0 records",
        "1 record",
        "2 records",
        "1\u202f000 records",
    ]
