"""Drivers that are not alone, decisions that are hidden, unfinished or gone: nothing is doubled or lost."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from support.clients.prepared_scenarios import ask
from support.pipeline.pipeline_sink_kit import Tasks, options, read, rows, schema
from support.running.patches import guard

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.model.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.admin.topics import create_topic
from splashdam.net.admin.transactions import open_transactions
from splashdam.pipeline.sink import committing, decisions, transactional
from splashdam.pipeline.sink.decisions import TIMEOUT_MS, Decider, Decision
from splashdam.pipeline.sink.tasks import TaskIdentity
from splashdam.pipeline.sink.transactional import TransactionalIds
from splashdam.pipeline.sink.writers import SinkMessage, StreamWriter, stream_writer

MARKERS = "__splashdam_spark_commits"


class Query:
    """A stream in exactly-once delivery, and what readers of committed records see of it."""

    def __init__(self, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers = broker.bootstrap_servers
        self.monkeypatch = monkeypatch
        self._tasks = Tasks(monkeypatch)

    @property
    def writer(self) -> StreamWriter:
        """A fresh one."""
        given = options(self.servers, topic="t", delivery="exactly_once")
        return stream_writer(schema("value binary"), given, False)

    def task(self, value: bytes, batch: int, *, is_stale: bool = False) -> SinkMessage:
        """Writes one row; stale: without having seen what is decided."""
        with self.monkeypatch.context() as patched:
            if is_stale:
                patched.setattr(transactional, "_last", lambda *_: None)
            return self._tasks.run(self.writer, rows([value]), query="q", batch=batch)

    def write(self, value: bytes, batch: int) -> None:
        """A whole batch."""
        self.writer.commit([self.task(value, batch)], batch)

    def decide_only(self, message: SinkMessage, batch: int) -> None:
        """A driver that dies behind its decision."""

        def die(*_: object) -> None:
            raise KafkaError("the driver dies")

        with self.monkeypatch.context() as patched:
            patched.setattr(committing, "_commit_all", die)
            with pytest.raises(KafkaError, match="the driver dies"):
                self.writer.commit([message], batch)

    def values(self) -> list[bytes]:
        """The records that readers see."""
        return [bytes(each.value) for each in read(self.servers, "t")]


@pytest.fixture
def query(kafka_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Query:
    """On a broker of its own."""
    monkeypatch.setattr(transactional, "IDS", TransactionalIds())
    return Query(kafka_broker, monkeypatch)


def test_another_querys_open_decision_hides_ours(query: Query) -> None:
    """A driver that died while it decided held back what read_committed sees: the batch was written twice."""
    query.write(b"0", 0)
    with KafkaProducer(bootstrap_servers=query.servers, transactional_id="other") as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(MARKERS, b"{}", key=b"other", partition=0).get()
        query.monkeypatch.setattr(committing, "PATIENCE_SECONDS", 0.7)
        message = query.task(b"1", 1)
        hidden = Decision(1, (message.outcome.prepared,))
        with Decider(query.writer._options, "q") as decider:
            decider.decide(hidden)
        again = query.task(b"1", 1, is_stale=True)
        with pytest.raises(KafkaTimeoutError, match="of another query is open"):
            query.writer.commit([again], 1)
        other.abort_transaction()
    query.writer.commit([again], 1)
    assert query.values() == [b"0", b"1"]


def test_decisions_are_open_for_a_short_time() -> None:
    """Not for the time of the sink's own transactions, which all other queries would wait for."""
    assert TIMEOUT_MS < committing.PATIENCE_SECONDS * 1000


def test_a_decision_that_is_gone(query: Query) -> None:
    """A decision that the cluster remembers and that the topic lacks was taken for no decision."""
    query.write(b"0", 0)
    message = query.task(b"1", 1)

    async def far(*_: object) -> dict[TopicPartition, OffsetAndMetadata]:
        return {TopicPartition(MARKERS, 0): OffsetAndMetadata(1000)}

    query.monkeypatch.setattr(decisions, "committed_offsets", far)
    with pytest.raises(KafkaError, match=r"offset 1000, is gone.*markerTopic"):
        query.writer.commit([message], 1)
    assert query.values() == [b"0"]


def test_an_unfinished_batch_without_a_retry(query: Query) -> None:
    """As with batch jobs: the next decision took its place, and its transactions were cleared away."""
    query.decide_only(query.task(b"0", 0), 0)
    query.write(b"1", 1)
    assert sorted(query.values()) == [b"0", b"1"]


def test_ids_wait_for_the_end_of_their_batch() -> None:
    """A decided transaction is aborted by the next producer of its id."""
    ids = TransactionalIds()
    first = ids.take(TaskIdentity("q", 0, 0), again=True)
    assert ids.take(TaskIdentity("q", 1, 0), again=False) != first
    assert ids.take(TaskIdentity("q", 2, 0), again=True) == first


def test_half_of_the_tasks_knew(query: Query) -> None:
    """A decision that is there for some tasks and not for the driver: half of the batch was decided."""
    query.write(b"0", 0)
    knew, wrote = query.task(b"0", 0), query.task(b"1", 1)
    knew.outcome = transactional.TaskOutcome(wrote.outcome.task, 0, was_decided=True)
    with pytest.raises(IllegalStateError, match="was the topic emptied"):
        query.writer.commit([wrote, knew], 1)
    assert query.values() == [b"0"]


def test_an_older_driver_clears_late(query: Query) -> None:
    """It aborted what the next batch had prepared under the same transactional id."""
    query.write(b"0", 0)
    loser = query.task(b"1", 1)
    left = committing._left_open(query.writer._options, "q")
    assert [each.transactional_id for each in left] == [loser.outcome.prepared.transactional_id]
    query.writer.abort([loser], 1)
    counts = query.task(b"2", 2)
    assert counts.outcome.prepared.transactional_id == loser.outcome.prepared.transactional_id
    committing._clear(query.writer._options, left)
    query.writer.commit([counts], 2)
    assert query.values() == [b"0", b"2"]


def test_a_batch_behind_the_last_one(query: Query) -> None:
    """Counts already; what a task without that news has prepared is given up."""
    for batch in range(2):
        query.write(b"%d" % batch, batch)
    query.writer.commit([query.task(b"0", 0, is_stale=True)], 0)
    assert query.values() == [b"0", b"1"]
    assert ask(query.servers, open_transactions) == []


def test_a_topic_that_others_have_made(query: Query) -> None:
    """Is used as it is: the right to create topics was asked for though it was there."""
    ask(query.servers, lambda client: create_topic(client, MARKERS, partitions=1))
    query.monkeypatch.setattr(committing, "ensure_topic", guard("no right to create"))
    query.write(b"0", 0)
    assert query.values() == [b"0"]
