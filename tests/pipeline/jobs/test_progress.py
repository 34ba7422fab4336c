"""Progress of a streaming query, read from what Spark reports, and waiting for its end."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.micro_batches import (
    BatchProgress,
    StreamTotals,
    follow,
    interval_of,
    read_progress,
)


def reported(batch: int, rows: int, **more: Any) -> dict[str, Any]:
    """An entry of ``recentProgress``."""
    return {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 10.0, **more}


class FakeQuery:
    """Has news each time it is waited for, and then ends."""

    def __init__(self, turns: list[list[dict[str, Any]]], *, interrupted: bool = False) -> None:
        self.turns = turns
        self.recentProgress: list[SimpleNamespace] = []
        self.interrupted = interrupted
        self.stopped = False

    def awaitTermination(self, timeout: int) -> bool:
        assert timeout
        if self.turns:
            self.recentProgress = [SimpleNamespace(json=json.dumps(each)) for each in self.turns.pop(0)]
            return bool(not self.turns and not self.interrupted)
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.stopped = True


def test_progress_of_a_batch() -> None:
    """Rows, speed, and by topic what lay behind the batch, whether offsets are JSON or text."""
    source = {"endOffset": {"t": {"0": 5, "1": 6}}, "latestOffset": json.dumps({"t": {"0": 15, "1": 6}})}
    progress = read_progress(reported(3, 40, sources=[source, source]))
    assert progress == BatchProgress(3, 40, 10.0, {"t": 20})


@pytest.mark.parametrize("offset", [None, 17, "17", "not json", {"t": 17}, {"logOffset": {"a": "b"}}])
def test_offsets_of_other_sources(offset: object) -> None:
    """No lag is told, and nothing fails."""
    source = {"endOffset": offset, "latestOffset": offset}
    assert read_progress(reported(0, 1, sources=[source])).lag == {}


def test_each_batch_is_reported_once() -> None:
    """However often Spark repeats it; an idle query repeats its last batch with no rows."""
    told: list[int] = []
    query = FakeQuery([[reported(0, 5)], [reported(0, 5), reported(1, 6)], [reported(1, 6), reported(1, 0)]])
    totals = follow(query, lambda progress: told.append(progress.batch))  # type: ignore[arg-type]  # a fake
    assert told == [0, 1]
    assert totals == StreamTotals(batches=2, rows=11, last_batch=1)


def test_interrupt_stops_the_query() -> None:
    """In order, before the interrupt goes on."""
    query = FakeQuery([[reported(0, 5)]], interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        follow(query)  # type: ignore[arg-type]  # a fake
    assert query.stopped


def test_interrupt_that_ended_the_jvm_too() -> None:
    """SIGTERM to a process group reaches Spark first: what is raised is the interrupt, not that failure."""

    def fail() -> None:
        raise ConnectionRefusedError("the JVM is gone")

    query = FakeQuery([], interrupted=True)
    query.stop = fail  # type: ignore[method-assign]  # a fake of a fake
    with pytest.raises(KeyboardInterrupt):
        follow(query)  # type: ignore[arg-type]  # a fake


def test_an_interval_reached_spark_in_a_form_that_it_does_not_read() -> None:
    """``1e-05 seconds``, and for other jobs 0, which is no pause. Fractions of a millisecond are rounded."""
    assert [interval_of(each) for each in (None, 0, 0.001, 0.29, 1.1, 86_400)] == [
        None,
        0,
        1,
        290,
        1100,
        86_400_000,
    ]
    with pytest.raises(KafkaConfigurationError, match="an interval of 1e-05 s is below Spark's shortest"):
        interval_of(0.00001)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(KafkaConfigurationError, match=f"0 for no pause, not {wrong}"):
            interval_of(wrong)
