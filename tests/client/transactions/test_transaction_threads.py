"""The blocking producer's transactions: threads that send while one commits, calls that must not wait."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.clients.transaction_scenarios import committed

from splashdam.client.producer import KafkaProducer
from splashdam.client.waiters import wait_in_thread
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import IllegalStateError

RECORDS_PER_TRANSACTION = 50


@pytest.mark.parametrize("serializer", [None, bytes], ids=["fast path", "slow path"])
def test_threads_that_send_while_another_one_commits(tmp_path: Path, serializer: Any) -> None:
    """Each record is refused, or it is in exactly the transaction in which its ``send`` returned."""
    with (
        EmbeddedBroker(tmp_path, fsync=False) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="x",
            value_serializer=serializer,
            batch_size=2000,
            linger_ms=1,
        ) as producer,
    ):
        producer.init_transactions()
        stop, sent, lock = threading.Event(), [], threading.Lock()
        accepted = threading.Semaphore(0)

        def send_on() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                if number % 20 == 0:
                    stop.wait(0.001)  # thousands of records are enough
                value = b"%d %d" % (threading.get_ident(), number)
                try:
                    future = producer.send("t", value, partition=0)
                except IllegalStateError:
                    continue
                with lock:
                    sent.append((value, future))
                accepted.release()

        threads = [threading.Thread(target=send_on) for _ in range(3)]
        producer.prepare("t")
        for thread in threads:
            thread.start()
        for _ in range(8):
            while accepted.acquire(blocking=False):  # those of the last transaction
                pass
            producer.begin_transaction()
            for _ in range(RECORDS_PER_TRANSACTION):
                assert accepted.acquire(timeout=300)
            producer.commit_transaction()
            with lock:
                assert all(future.succeeded() for _, future in sent)  # nothing is left behind a commit
        stop.set()
        for thread in threads:
            thread.join()
        assert len(sent) >= 8 * RECORDS_PER_TRANSACTION
        in_order = sorted(sent, key=lambda each: each[1].get(timeout=300).offset)
        assert committed(str(broker.bootstrap_servers), "t", len(sent)) == [value for value, _ in in_order]


def test_calls_in_callbacks_are_refused(tmp_path: Path, undelivered: Any) -> None:
    """They would wait for the thread they run in; sending is fine there."""
    with KafkaProducer(
        bootstrap_servers=f"embedded:{tmp_path}", transactional_id="x", linger_ms=0
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        errors: list[BaseException] = []

        def call_all(_metadata: object) -> None:
            for call in (producer.commit_transaction, producer.abort_transaction, producer.init_transactions):
                try:
                    call()
                except IllegalStateError as error:
                    errors.append(error)

        with undelivered(producer):
            future = producer.send("one", b"x").add_callback(call_all)
        future.get(timeout=300)
        producer.flush()
        assert len(errors) == 3
        assert all("would wait for ever here" in str(error) for error in errors)
        producer.commit_transaction()


def test_ctrl_c_in_a_block_aborts_it_without_waiting(tmp_path: Path) -> None:
    """The interrupt goes on at once; the next transaction can begin when the abort has ended."""
    with (
        EmbeddedBroker(tmp_path, fsync=False) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer,
    ):
        producer.init_transactions()

        def interrupted() -> None:
            with producer.transaction():
                producer.send("t", b"x")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        abort = producer._transactions().unattended
        if abort is not None:  # else it has ended already
            assert wait_in_thread(abort.finished, 300)
        with producer.transaction():
            producer.send("t", b"y")
        assert committed(str(broker.bootstrap_servers), "t", 1) == [b"y"]


def test_a_block_that_ends_its_transaction_itself(tmp_path: Path) -> None:
    """The block does not end it a second time."""
    with (
        EmbeddedBroker(tmp_path, fsync=False) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer,
    ):
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"x")
            producer.commit_transaction()
        with producer.transaction():
            producer.abort_transaction()
        assert committed(str(broker.bootstrap_servers), "t", 1) == [b"x"]


def test_topics_are_looked_up_between_transactions(tmp_path: Path) -> None:
    """Their metadata have nothing to do with them."""
    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}", transactional_id="x") as producer:
        assert producer.partitions_for("t") == {0}
        producer.init_transactions()
        producer.prepare("t")


def test_a_closed_producer_says_so(tmp_path: Path) -> None:
    """Every call, as ``send`` does."""
    producer = KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}", transactional_id="x")
    producer.init_transactions()
    producer.close()
    for call in (producer.begin_transaction, producer.commit_transaction, producer.init_transactions):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_plain_producers_do_not_load_transactions() -> None:
    """Their modules come with the option."""
    script = (
        "import sys\n"
        "from splashdam import KafkaProducer\n"
        "KafkaProducer().close()\n"
        "print(*sorted(name for name in sys.modules if name.startswith('splashdam.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = [name for name in done.stdout.split() if "transaction" in name or "coordinat" in name]
    assert loaded == []
