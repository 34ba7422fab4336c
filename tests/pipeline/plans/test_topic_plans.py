"""What a stream would read, by its checkpoint and the cluster, and what is refused; no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.local_source_kit import BOOTSTRAP, FakeCluster, FakeLog

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.options import source_options
from splashdam.pipeline.local_source.planning import DataLossError
from splashdam.pipeline.plans.checkpoints import Progress, progress_in
from splashdam.pipeline.plans.jobs import StreamPlan
from splashdam.pipeline.plans.topics import Backlog, backlog


def checkpoint(folder: Path, *offsets: object, done: int) -> str:
    """A folder as Spark leaves it: the ends of planned batches, of which some are done."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, ends in enumerate(offsets):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"conf":{{}}}}\n{json.dumps(ends)}')
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(done):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


def read(cluster: FakeCluster, progress: Progress | None = None, **options: Any) -> Backlog:
    given = {**BOOTSTRAP, "subscribe": "t", "startingOffsets": "earliest", **options}
    return backlog(source_options(given, streaming=True), progress or Progress("ckpt"), cluster)


def ranges(found: Backlog) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in found.ranges]


def test_new_checkpoint(tmp_path: Path) -> None:
    """Everything from the start on, with a share of the bytes."""
    cluster = FakeCluster(t=[FakeLog(5, [0] * 20), FakeLog()])
    found = read(cluster, progress_in(str(tmp_path / "new")))
    assert ranges(found) == [(5, 25), (0, 0)]
    assert (found.records, found.total_bytes, found.batches(8)) == (20, 200, 3)
    assert [entry.what for entry in found.entries()] == [
        "topic t: 20 offsets in 2 partitions, about 200 B, from the earliest offsets"
    ]
    assert found.entries()[0].details[0].split() == ["t-0", "5", "to", "25", "20", "offsets", "200", "B"]


def test_checkpoint_continues_after_the_last_batch_that_is_done(tmp_path: Path) -> None:
    """A batch that was only planned is repeated; new partitions begin at their first offset."""
    place = checkpoint(tmp_path / "c", {"t": {"0": 4}}, {"t": {"0": 9}}, done=1)
    progress = progress_in(place)
    assert (progress.done, progress.repeated) == (0, 1)
    found = read(FakeCluster(t=[FakeLog(0, [0] * 10), FakeLog(2, [0])]), progress)
    assert ranges(found) == [(4, 10), (2, 3)]
    assert found.size_bytes == {TopicPartition("t", 0): 60, TopicPartition("t", 1): 10}
    assert "1 micro-batch done, number 1 was begun" in progress.entry.what


def test_checkpoint_of_other_topics(tmp_path: Path) -> None:
    """Spark reported a loss of data, after ten seconds."""
    progress = progress_in(checkpoint(tmp_path / "c", {"other": {"0": 4}}, done=1))
    with pytest.raises(KafkaConfigurationError, match="is of a query that reads other, and this one reads t"):
        read(FakeCluster(t=[FakeLog()]), progress)


@pytest.mark.parametrize(
    ("log", "said"),
    [(FakeLog(0, [0] * 3), "read up to 4 and now ends at 3"), (FakeLog(6, [0]), "now begins at 6")],
)
def test_lost_records(log: FakeLog, said: str, tmp_path: Path) -> None:
    """As the query's first micro-batch would say."""
    progress = progress_in(checkpoint(tmp_path / "c", {"t": {"0": 4}}, done=1))
    with pytest.raises(DataLossError, match=said):
        read(FakeCluster(t=[log]), progress)


def test_a_start_outside_of_the_log_was_called_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing had been read that could be lost; and it was logged, twice."""
    for offset, said in ((9, "its log ends at 8"), (4, "its log begins at 5")):
        with pytest.raises(KafkaConfigurationError, match=f"startingOffsets={offset} for t-0: {said}"):
            read(FakeCluster(t=[FakeLog(5, [0] * 3)]), startingOffsets=json.dumps({"t": {"0": offset}}))
    assert caplog.records == []


def test_kept_first_offsets(tmp_path: Path) -> None:
    """A query that was started at the latest offsets, and died before its first batch was planned."""
    place = tmp_path / "initial-offsets"
    place.mkdir()
    options = {"startingOffsets": "latest", "initialOffsetsLocation": str(place)}
    cluster = FakeCluster(t=[FakeLog(0, [0] * 10)])
    assert ranges(read(cluster, **options)) == [(10, 10)]
    assert list(place.iterdir()) == [], "a plan keeps nothing"
    kept = {"version": 1, "reads": "subscribe=t, startingOffsets=latest", "offsets": {"t": {"0": 7}}}
    (place / "initial-offsets.json").write_text(json.dumps(kept))
    assert ranges(read(cluster, **options)) == [(7, 10)]


def test_missing_topic() -> None:
    """Named as the source names it."""
    with pytest.raises(UnknownTopicOrPartitionError, match="not in the cluster: t"):
        read(FakeCluster(u=[FakeLog()]))


def test_a_pattern_found_the_query_s_own_commits(tmp_path: Path) -> None:
    """They are a topic like any other."""
    source = {**BOOTSTRAP, "subscribePattern": "__s.*", "startingOffsets": "earliest"}
    stream = StreamPlan(source, str(tmp_path / "c"), cluster=FakeCluster(t=[FakeLog()], __s=[FakeLog()]))
    with pytest.raises(KafkaConfigurationError, match="topic __s cannot be read by a query that writes to"):
        stream.plan([], "", committed_in={"__s"})
    assert stream.plan([], "").reads


def test_cluster_that_tells_no_sizes() -> None:
    """The right to describe log directories is one of its own."""

    class Silent(FakeCluster):
        def sizes(self, partitions: object) -> None:
            return None

    found = read(Silent(t=[FakeLog(0, [0])]))
    assert found.total_bytes is None
    assert "about an unknown number of bytes" in found.entries()[0].what


@pytest.mark.parametrize(
    "text", ["", "v1\n{}\n", "v1\n{}\nnot json", "v2\n{}\n{}", "v1\n{}\n{}\n{}", "v1\n{}\n[1]"]
)
def test_checkpoint_that_is_not_understood(text: str, tmp_path: Path) -> None:
    """Torn, of another version, or of a query with two sources."""
    place = checkpoint(tmp_path / "c", {"t": {"0": 1}}, done=1)
    (tmp_path / "c/offsets/0").write_text(text)
    with pytest.raises(KafkaConfigurationError, match="belongs to something else"):
        progress_in(place)


def test_checkpoint_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    """A file in its way, and the table's folder; elsewhere than on a disk only Spark can look."""
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaConfigurationError, match="file is not a folder"):
        progress_in(str(tmp_path / "file" / "c"))
    with pytest.raises(KafkaConfigurationError, match="are one folder, or one inside"):
        progress_in(str(tmp_path / "t"), apart_from=(f"{tmp_path}/t/",))
    for checkpoint, table in ((tmp_path / "t/c", tmp_path / "t"), (tmp_path / "t/../t", tmp_path / "t/c")):
        with pytest.raises(KafkaConfigurationError, match="are one folder, or one inside"):
            progress_in(str(checkpoint), apart_from=(str(table),))
    for uri in ("s3a://bucket/t/c", "s3://bucket/x/../t//c/"):
        with pytest.raises(KafkaConfigurationError, match="are one folder, or one inside"):
            progress_in(uri, apart_from=("s3://bucket/t/",))
    for uri in ("s3://bucket/t2", "s3://other/t/c", "gs://bucket/t/c"):
        assert progress_in(uri, apart_from=("s3://bucket/t",)).is_unseen
    assert "not looked into" in progress_in("s3a://bucket/c").entry.what
