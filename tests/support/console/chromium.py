"""What tests in a browser share."""

from __future__ import annotations

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SMALL = {"log.segment.bytes": 20_000, "log.index.interval.bytes": 500, "offsets.topic.num.partitions": 1}
"""Settings of a broker whose logs have many small segments."""


class Complaints(list[str]):
    """What a page has written to its console, errors of its scripts, and dialogs that it has opened."""
