"""What a commit leaves in the cluster, and what it does about attempts and drivers that do not count."""

from __future__ import annotations

from typing import Any

import attrs
import kafka
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from support.clients.prepared_scenarios import ask
from support.pipeline.pipeline_sink_kit import Tasks, options, read, rows, schema

from splashdam import EmbeddedBroker
from splashdam.model.broker_errors import ProducerFencedError, UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaError
from splashdam.net.admin.groups import committed_offsets
from splashdam.net.admin.topics import describe_topic
from splashdam.net.admin.transactions import fence_transactional_id, open_transactions
from splashdam.pipeline.sink import committing
from splashdam.pipeline.sink.committing import LostTransactionsError
from splashdam.pipeline.sink.decisions import Decider, Decision
from splashdam.pipeline.sink.tasks import TaskIdentity
from splashdam.pipeline.sink.transactional import TransactionalIds
from splashdam.pipeline.sink.writers import SinkMessage, StreamWriter, batch_writer, stream_writer

MARKERS = "__splashdam_spark_commits"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Runs tasks as Spark would."""
    return Tasks(monkeypatch)


def writer_of(broker: EmbeddedBroker, **more: str) -> StreamWriter:
    """A fresh one, as Spark makes for every call."""
    given = options(broker.bootstrap_servers, topic="t", delivery="exactly_once", **more)
    return stream_writer(schema("value binary"), given, False)


def values(broker: EmbeddedBroker) -> list[bytes]:
    """The records that read_committed consumers see."""
    return [bytes(each.value) for each in read(broker.bootstrap_servers, "t")]


def fence(broker: EmbeddedBroker, transactional_id: str) -> None:
    """As if its time had run out."""
    ask(broker.bootstrap_servers, lambda client: fence_transactional_id(client, transactional_id))


def test_nothing_is_seen_before_the_commit(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Trap 18: what commits is another writer than what wrote; kafka-python sees the rows then."""
    message = tasks.run(writer_of(kafka_broker), rows([b"1", b"2"]), query="q", batch=0)
    assert values(kafka_broker) == []
    writer_of(kafka_broker).commit([message], 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=kafka_broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    consumer.assign([kafka.TopicPartition("t", 0)])
    assert [next(consumer).value for _ in range(2)] == [b"1", b"2"]
    consumer.close()


def test_an_abort_after_the_decision(
    kafka_broker: EmbeddedBroker, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 19: a commit that raises is followed by an abort with messages that may be None, and a replay."""

    def broken(*_: object) -> None:
        raise KafkaError("no coordinator")

    message = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0)
    with monkeypatch.context() as patched:
        patched.setattr(committing, "_commit_all", broken)
        with pytest.raises(KafkaError, match="no coordinator"):
            writer_of(kafka_broker).commit([message], 0)
    writer_of(kafka_broker).abort([message, None], 0)
    writer_of(kafka_broker).abort([None], 0)
    replayed = tasks.run(writer_of(kafka_broker), rows([b"another split"]), partition=1, query="q", batch=0)
    assert replayed.outcome.was_decided
    writer_of(kafka_broker).commit([replayed], 0)
    assert values(kafka_broker) == [b"1"]


def test_an_abort_before_the_decision(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Ends what its messages name, no more: another driver may be writing the batch. It is written anew."""
    message = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0)
    other = tasks.run(writer_of(kafka_broker), rows([b"lost message"]), query="q", batch=0)
    writer_of(kafka_broker).abort([message, None], 0)
    left = ask(kafka_broker.bootstrap_servers, open_transactions)
    assert left == [other.outcome.prepared.transactional_id]
    again = tasks.run(writer_of(kafka_broker), rows([b"2"]), query="q", batch=0)
    writer_of(kafka_broker).commit([again], 0)
    assert values(kafka_broker) == [b"2"]
    assert ask(kafka_broker.bootstrap_servers, open_transactions) == []


def test_the_loser_of_two_attempts(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Is aborted by the commit of the winner, also where both have finished; other queries are left alone."""
    winner, _loser = (tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0) for _ in range(2))
    other = tasks.run(writer_of(kafka_broker), rows([b"other"]), query="q/2", batch=0)
    writer_of(kafka_broker).commit([winner], 0)
    left = ask(kafka_broker.bootstrap_servers, open_transactions)
    assert left == [other.outcome.prepared.transactional_id]
    writer_of(kafka_broker).commit([other], 0)
    assert sorted(values(kafka_broker)) == [b"1", b"other"]


def test_ids_are_used_again_by_later_batches(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Coordinators remember them for days."""
    ids = []
    for batch in range(3):
        message = tasks.run(writer_of(kafka_broker), rows([b"%d" % batch]), query="reused", batch=batch)
        writer_of(kafka_broker).commit([message], batch)
        ids.append(message.outcome.prepared.transactional_id)
    assert len(set(ids)) == 1
    assert values(kafka_broker) == [b"0", b"1", b"2"]


def test_a_query_that_was_forgotten_comes_back() -> None:
    """Its new ids differ from its old ones, whose transactions may be prepared."""
    ids, task = TransactionalIds(), TaskIdentity("q", 3, 0)
    taken = [ids.take(task, again=True)]
    for number in range(100):
        ids.take(TaskIdentity(f"q{number}", 0, 0), again=True)
    taken += [ids.take(task, again=True), ids.take(task, again=True)]
    assert len(set(taken)) == 3


def test_lost_before_the_decision(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Nothing is decided that cannot be carried out: the batch is written again."""
    message = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0)
    fence(kafka_broker, message.outcome.prepared.transactional_id)
    with pytest.raises(KafkaError, match=r"not committed.*not open any more"):
        writer_of(kafka_broker).commit([message], 0)
    again = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0)
    writer_of(kafka_broker).commit([again], 0)
    assert values(kafka_broker) == [b"1"]


def test_lost_after_the_decision(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """The hole: it is told each time, with the transactions by name, until somebody accepts it."""
    kept, lost = (
        tasks.run(writer_of(kafka_broker), rows([b"%d" % number]), number, "q", 0) for number in range(2)
    )
    transactions = tuple(each.outcome.prepared for each in (kept, lost))
    with Decider(writer_of(kafka_broker)._options, "q") as decider:
        ask(kafka_broker.bootstrap_servers, committing_topic)
        decider.decide(Decision(0, transactions))
    fence(kafka_broker, lost.outcome.prepared.transactional_id)
    for _ in range(2):
        replayed = tasks.run(writer_of(kafka_broker), rows([b"x"]), query="q", batch=0)
        with pytest.raises(LostTransactionsError, match=lost.outcome.prepared.transactional_id):
            writer_of(kafka_broker).commit([replayed], 0)
    writer_of(kafka_broker, failOnDataLoss="false").commit([replayed], 0)
    writer_of(kafka_broker).commit([replayed], 0)
    assert values(kafka_broker) == [b"0"]


async def committing_topic(client: object) -> None:
    """The topic of decisions."""
    from splashdam.pipeline.clusters import Clients
    from splashdam.pipeline.sink.decisions import ensure_topic

    await ensure_topic(Clients(client, None), MARKERS)  # type: ignore[arg-type]  # it only creates


def test_two_drivers(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """The newer one decides; what the older one is about to say does not count."""
    settings = writer_of(kafka_broker)._options
    ask(kafka_broker.bootstrap_servers, committing_topic)
    with Decider(settings, "q") as older:
        message = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0)
        writer_of(kafka_broker).commit([message], 0)
        with pytest.raises(ProducerFencedError, match="runs twice"):
            older.decide(Decision(0, ()))
    assert values(kafka_broker) == [b"1"]


def test_the_topic_of_decisions(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Is compacted, and a group offset says where the query's last record is."""
    for batch in range(2):
        message = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=batch)
        writer_of(kafka_broker).commit([message], batch)
    servers = kafka_broker.bootstrap_servers
    described = ask(servers, lambda client: describe_topic(client, MARKERS))
    assert len(described.partitions) == 1
    last = read(servers, MARKERS)[-1]
    remembered = ask(servers, lambda client: committed_offsets(client, "splashdam-spark-decision/q"))
    assert [each.offset for each in remembered.values()] == [last.offset]


def test_a_topic_that_a_broker_does_not_know_for_a_moment(
    kafka_broker: EmbeddedBroker, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is waited for: a decision was taken for missing, and the batch written again."""
    first = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=0)
    writer_of(kafka_broker).commit([first], 0)
    second = tasks.run(writer_of(kafka_broker), rows([b"1"]), query="q", batch=1)
    again = SinkMessage(attrs.evolve(second.outcome, task=first.outcome.task))  # which saw no decision
    present, asked = committing.last_decision, []

    async def late(*arguments: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise UnknownTopicOrPartitionError
        return await present(*arguments, **more)

    monkeypatch.setattr(committing, "last_decision", late)
    writer_of(kafka_broker).commit([again], 0)
    assert values(kafka_broker) == [b"1"]


def test_a_named_batch_job_is_written_once(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """As from foreachBatch: the name and the batch say which it is. Without a name each job is new."""
    for batch in ("0", "0", "1"):
        given = options(
            kafka_broker.bootstrap_servers, topic="t", delivery="exactly_once", queryName="n", batchId=batch
        )
        writer = batch_writer(schema("value binary"), given, False)
        writer.commit([tasks.run(writer, rows([b"%s" % batch.encode()])), tasks.run(writer, rows([]))])
    assert values(kafka_broker) == [b"0", b"1"]
