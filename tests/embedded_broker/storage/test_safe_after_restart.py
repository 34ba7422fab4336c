"""What a start may call safe: bytes and names that an earlier process wrote and nobody synced are not."""

from __future__ import annotations

import trio
from log_kit import DIRECTORY, NOW_MS, batch, open_log, values_of

from splashdam.embedded_broker.storage.log_manager import LogManager
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.model.values import TopicPartition
from splashdam.testing.memory_files import MemoryFiles

SMALL = LogSettings(segment_bytes=4 * len(batch(b"00")))


def test_what_a_killed_broker_wrote_survives_a_power_cut_after_the_next_clean_end() -> None:
    """Recovery syncs the logs it read, or the clean marker would vouch for bytes in memory alone."""
    files = MemoryFiles()
    settings_for = SMALL.with_configs
    manager = LogManager.open(files, "/data", now_ms=NOW_MS, settings_for=settings_for)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    values = [b"%02d" % number for number in range(10)]
    for value in values:
        manager.logs[TopicPartition("a", 0)].append_as_leader(batch(value), now_ms=NOW_MS)
    files.kill()
    LogManager.open(files, "/data", now_ms=NOW_MS, settings_for=settings_for).close()
    files.crash()
    manager = LogManager.open(files, "/data", now_ms=NOW_MS, settings_for=settings_for)
    assert values_of(manager.logs[TopicPartition("a", 0)]) == values


async def test_a_cancelled_sync_forgets_no_new_names() -> None:
    """The next flush syncs the directory that the cancelled one did not come to."""
    files = MemoryFiles()
    log = open_log(files, settings=SMALL)
    files.sync_directory("/data")
    files.sync_directory("/")
    for number in range(6):
        log.append_as_leader(batch(b"%02d" % number), now_ms=NOW_MS)
    with trio.CancelScope() as scope:
        scope.cancel()
        await log.sync()
    assert scope.cancelled_caught
    log.flush()
    files.crash()
    assert log.recovery_point == 6
    assert f"{4:020d}.log" in [name for name, _ in files.list_directory(DIRECTORY)]
    assert len(values_of(open_log(files, settings=SMALL, recovery_point=6))) == 6
