"""Files of brokers that need not outlive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.running.patches import guard

from splashdam import EmbeddedBroker, KafkaProducer


def test_the_disk_is_never_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where every message is to be flushed; what was written is there after a restart."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, guard("it waits for the disk"))
    for offset in (0, 1):
        with (
            EmbeddedBroker(tmp_path, fsync=False, log_flush_interval_messages=1) as broker,
            KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ):
            assert producer.send("t", b"v").get(timeout=300).offset == offset
