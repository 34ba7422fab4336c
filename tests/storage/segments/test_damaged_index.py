"""An index that lies must not hide records: it is only ever a hint."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.storage.logs import NOW_MS, batch, open_log, read_all

from splashdam.record.batch import parse_header
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.settings import LogSettings

SETTINGS = LogSettings(segment_bytes=4000, index_interval_bytes=200)
BATCHES = 200


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was closed cleanly, with several segments."""
    directory = tmp_path_factory.mktemp("written") / "t-0"
    directory.mkdir()
    log = open_log(DiskFiles(), str(directory), settings=SETTINGS)
    for number in range(BATCHES):
        log.append_as_leader(batch(b"%d" % number), now_ms=NOW_MS)
    log.close()
    return directory


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(at=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255), sealed=st.booleans())
def test_flipped_bits_in_an_index_hide_no_record(
    written: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, at: float, mask: int, sealed: bool
) -> None:
    """Whatever stands in ``.index``, a fetch from any offset begins with the batch that holds it."""
    caplog.set_level(logging.CRITICAL)  # each damage is a warning of its own
    directory = tmp_path / "t-0"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(written, directory)
    indexes = sorted(path for path in directory.glob("*.index") if path.stat().st_size)
    damaged = bytearray(indexes[0 if sealed else -1].read_bytes())
    damaged[int(at * len(damaged))] ^= mask
    indexes[0 if sealed else -1].write_bytes(damaged)
    log = open_log(DiskFiles(), str(directory), settings=SETTINGS, clean=True, recovery_point=BATCHES)
    try:
        assert log.log_end_offset == BATCHES
        assert [record.value for record in read_all(log)] == [b"%d" % number for number in range(BATCHES)]
        for offset in range(0, BATCHES, 3):
            header = parse_header(log.read(offset, 100).read())
            assert header.base_offset <= offset <= header.last_offset
    finally:
        log.close()
