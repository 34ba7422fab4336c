"""Random logs, cleaned at random moments, against a plain model of what a reader must and may find."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples
from support.storage.compacted_logs import clean, compacted_log, keyed
from support.storage.logs import DIRECTORY, NOW_MS, open_log, read_all

from splashdam.record.batch import Codec
from splashdam.record.compression import Compression
from splashdam.record.record import Record
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log

RETENTION_MS = 1_000
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.sampled_from([None, b"", b"x", b"y" * 200])
BATCHES = st.tuples(
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
    st.sampled_from(list(Codec)),
    st.integers(-5_000, 5_000),
    st.sampled_from([-1, -1, 3]),
)
STEPS = st.lists(
    st.one_of(
        BATCHES.map(lambda batch: ("append", batch)),
        st.just(("roll", None)),
        st.tuples(st.just("clean"), st.tuples(st.integers(0, 1_500), st.sampled_from([48, 96, 10_000]))),
        st.sampled_from([("kill", None), ("reopen", None)]),
    ),
    max_size=40,
)


class Model:
    """Every record ever written, and of each key what must still be there."""

    def __init__(self) -> None:
        self.written: dict[int, Record] = {}
        self.horizons: dict[int, int] = {}  # of tombstones that a cleaning may have met
        self.now_ms = NOW_MS

    def newest(self, below: int = 2**63) -> Mapping[bytes | None, Record]:
        """By key, of those at offsets below."""
        return {record.key: record for offset, record in sorted(self.written.items()) if offset < below}

    def check(self, found: list[Record], cleaned_up_to: int) -> None:
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            assert record == self.written[record.offset]
        there = {record.offset for record in found}
        for key, record in self.newest().items():
            if record.value is None and self.horizons.get(record.offset, self.now_ms + 1) <= self.now_ms:
                continue  # it may be gone; then older ones are, too
            assert record.offset in there, key
        for key in {record.key for record in found}:
            last = max(record.offset for record in found if record.key == key)
            assert last == self.newest()[key].offset, f"an older record of {key!r} came back"
        cleaned = [record for record in found if record.offset < cleaned_up_to]
        for record in cleaned:
            assert record.offset == self.newest(cleaned_up_to)[record.key].offset, "it should be gone"


@given(STEPS)
@settings(max_examples=examples(120), deadline=None)
def test_against_a_model(steps: list) -> None:  # type: ignore[type-arg]  # pairs of a name and what belongs to it
    """Offsets, timestamps, order and the newest record of each key; a map too small takes several rounds."""
    files, model, first_dirty, sequence = MemoryFiles(), Model(), 0, 0
    log = compacted_log(files, segment_bytes=1_300, index_interval_bytes=100)
    for step, what in steps:
        if step == "append":
            sequence = append(log, model, what, sequence)
        elif step == "roll":
            log.roll(NOW_MS)
            log.flush()
        elif step == "clean":
            later_ms, map_bytes = what
            model.now_ms += later_ms
            first_dirty = clean(
                files,
                log,
                now_ms=model.now_ms,
                first_dirty=first_dirty,
                log_cleaner_dedupe_buffer_size=map_bytes,
            )
            for offset, record in model.written.items():
                if record.value is None:
                    model.horizons.setdefault(offset, model.now_ms + RETENTION_MS)
        else:
            log = reopened(files, log, is_clean=step == "reopen")
        model.check(read_all(log), first_dirty)
    reopened(files, log, is_clean=False).close()


def append(log: Log, model: Model, what: tuple, sequence: int) -> int:  # type: ignore[type-arg]  # of BATCHES
    pairs, codec, age_ms, producer_id = what
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    batch = keyed(
        *pairs,
        timestamp_ms=NOW_MS - age_ms,
        compression=Compression(codec),
        **(options if producer_id >= 0 else {}),
    )
    base = log.append_as_leader(batch, now_ms=NOW_MS).base_offset
    for number, (key, value) in enumerate(pairs):
        model.written[base + number] = Record(base + number, NOW_MS - age_ms, key, value, ())
    return sequence + (len(pairs) if producer_id >= 0 else 0)


def reopened(files: MemoryFiles, log: Log, *, is_clean: bool) -> Log:
    end = log.log_end_offset
    if is_clean:
        log.close()
    files.kill()
    log = open_log(files, DIRECTORY, settings=log.settings, clean=is_clean)
    assert log.log_end_offset == end
    log.flush()
    return log
