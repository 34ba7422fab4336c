"""Eight threads send, one flushes, one closes; run by ``test_threads.py`` once per twin and shape.

Shapes: ``few`` fills batches on one topic; ``many`` spreads over dozens of topics with a batch per record, so
that queues come and go all the time under the eyes of the sender.

Every count is checked to the record: what was acknowledged is in the log once, each thread's records are in
the order in which it sent them, whatever was not acknowledged has failed, and all memory is given back.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from conftest import TcpCluster

from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import IllegalStateError
from splashdam.record.kernel import IMPL

THREADS = 8
PARTITIONS = 2
PATIENCE_SECONDS = 400  # against a hang alone: a busy machine may take long
MANY = [f"topic-{number}" for number in range(60)]


class Enough:
    """When one thread has sent so many records, the producer is closed."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.reached = threading.Event()


def send_until_closed(
    producer: KafkaProducer, topics: Sequence[str], name: int, futures: list[Any], enough: Enough
) -> None:
    number = 0
    while True:
        try:
            value = b"%d:%d" % (name, number)
            topic = topics[number * 7 % len(topics)]
            partition = number % PARTITIONS if number % 3 else None
            key = None if number % 5 else b"key-%d" % name
            futures.append((value, producer.send(topic, value, key=key, partition=partition)))
        except IllegalStateError:
            return
        number += 1
        if number == enough.records:
            enough.reached.set()


def flush_until_closed(producer: KafkaProducer, closed: threading.Event, reports: list[Any]) -> None:
    while not closed.is_set():
        reports.append(producer.flush(timeout=PATIENCE_SECONDS))


def run(
    cluster: TcpCluster, topics: Sequence[str], batch_size: int, records: int, close_timeout: float | None
) -> str:
    """One round; what was seen, in a line."""
    producer = KafkaProducer(
        bootstrap_servers=cluster.address, buffer_memory=200_000, batch_size=batch_size, linger_ms=1
    )
    sent: list[list[Any]] = [[] for _ in range(THREADS)]
    enough, closed, reports = Enough(records), threading.Event(), list[Any]()
    threads = [
        threading.Thread(target=send_until_closed, args=(producer, topics, name, futures, enough))
        for name, futures in enumerate(sent)
    ]
    threads.append(threading.Thread(target=flush_until_closed, args=(producer, closed, reports)))
    for thread in threads:
        thread.start()
    assert enough.reached.wait(PATIENCE_SECONDS), "the senders did not get on"
    producer.close(close_timeout)
    closed.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    if close_timeout is None:
        assert all(reports), "something was not delivered although close had all the time it wanted"
    return check(cluster, topics, producer, sent, reports)


def check(
    cluster: TcpCluster,
    topics: Sequence[str],
    producer: KafkaProducer,
    sent: list[list[Any]],
    reports: list[Any],
) -> str:
    """Compares futures, logs and figures."""
    logs = {
        (topic, partition): cluster.values(topic, partition)
        for topic in topics
        for partition in range(PARTITIONS)
    }
    futures = [each for futures in sent for each in futures]
    assert all(future.is_done for _, future in futures), "a future is pending after close"
    acknowledged = [(value, future) for value, future in futures if future.succeeded()]
    for value, future in acknowledged:
        assert logs[future.value[:2]][future.value.offset] == value
    written = [value for log in logs.values() for value in log]
    assert len(set(written)) == len(written), "a record was written twice"
    assert {value for value, _ in acknowledged} <= set(written)
    assert set(written) <= {value for value, _ in futures}
    for log in logs.values():
        for name in range(THREADS):
            numbers = [int(value.split(b":")[1]) for value in log if value.startswith(b"%d:" % name)]
            assert numbers == sorted(numbers), f"the records of thread {name} are out of order"
    figures = producer.metrics()["producer-metrics"]
    assert figures["buffer-available-bytes"] == 200_000, figures
    assert figures["waiting-threads"] == 0, figures
    assert figures["batches-incomplete"] == 0, figures
    assert figures["record-ack-total"] == len(acknowledged), figures
    return f"{IMPL}: {len(futures)} sent, {len(acknowledged)} acknowledged, {len(reports)} flushes"


def main() -> None:
    sys.setswitchinterval(1e-5)
    records = int(sys.argv[2])
    topics, batch_size = (MANY, 0) if sys.argv[1] == "many" else (["two"], 4_096)
    for close_timeout in (None, 0):
        cluster = TcpCluster(dict.fromkeys(topics, PARTITIONS))
        cluster.start()
        try:
            print(run(cluster, topics, batch_size, records, close_timeout))
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
