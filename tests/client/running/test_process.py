"""Producers in real processes: forks, exits with and without close, signals, finalizers."""

from __future__ import annotations

from typing import Any

import pytest
from support.running.process_kit import run_script, silent_produce


def test_a_forked_child_is_told_to_make_its_own(tcp_cluster: Any) -> None:
    """Every call raises at once, closing is quiet, nothing is sent, and the parent's connection lives on."""
    done = run_script(
        """
        import os, sys, threading, time
        from splashdam import KafkaProducer
        from splashdam.errors import IllegalStateError

        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=50)
        producer.send("one", b"before").get(timeout=300)
        lingering = producer.send("one", b"lingering")
        sockets = [stream.socket.fileno() for stream in producer._core.connect._streams]
        assert sockets and min(sockets) >= 0
        held, fork = threading.Event(), threading.Event()

        def stay():
            held.set()
            fork.wait()

        holder = threading.Thread(target=producer._core.guard.run, args=(stay,))
        holder.start()
        held.wait()
        pid = os.fork()
        if not pid:
            for call in (
                lambda: producer.send("one", b"from the child"),
                lambda: producer.send_nowait("one", b"from the child"),
                producer.flush,
                producer.metrics,
                producer.bootstrap_connected,
                lambda: producer.partitions_for("one"),
            ):
                try:
                    call()
                except IllegalStateError as error:
                    assert "create the producer in the worker" in str(error), error
                else:
                    raise AssertionError(call)
            producer.close()
            for fd in sockets:
                try:
                    os.fstat(fd)
                except OSError:
                    continue
                raise AssertionError("the child has the socket")
            with KafkaProducer(bootstrap_servers=sys.argv[1]) as own:
                own.send("two", b"own").get(timeout=300)
            sys.exit(7)
        fork.set()
        holder.join()
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        lingering.get(timeout=300)
        producer.send("one", b"after").get(timeout=300)
        producer.close()
        print("parent done")
        """,
        tcp_cluster.address,
    )
    assert (done.stdout, done.stderr) == ("parent done\n", "")
    assert tcp_cluster.values("one") == [b"before", b"lingering", b"after"]
    assert tcp_cluster.values("two", 0) + tcp_cluster.values("two", 1) == [b"own"]


def test_an_open_producer_at_exit_delivers(tcp_cluster: Any) -> None:
    """A script that forgets to close, and whose first connection is not even made, loses nothing."""
    done = run_script(
        """
        import sys
        from splashdam import KafkaProducer
        host, port = sys.argv[1].split(":")
        producer = KafkaProducer(bootstrap_servers=f"localhost:{port}", linger_ms=60_000)
        producer.send("one", b"last words")
        another = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
        another.send("two", b"of another", partition=0)
        """,
        tcp_cluster.address,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert tcp_cluster.values("one") == [b"last words"]
    assert tcp_cluster.values("two") == [b"of another"]


def test_an_open_producer_at_exit_gives_up(tcp_cluster: Any) -> None:
    """After ``exit_timeout_ms``, with one line that counts; nothing is raised."""
    tcp_cluster.scripted.trouble_for = silent_produce
    done = run_script(
        """
        import sys, time, atexit
        from splashdam import KafkaProducer
        producer = KafkaProducer(bootstrap_servers=sys.argv[1], exit_timeout_ms=200)
        atexit.register(lambda: print(f"{time.monotonic() - started:.3f}"))  # runs after the producer's
        KafkaProducer(bootstrap_servers=sys.argv[1]).close()
        producer.send_many("one", [b"lost"] * 3, partition=0)  # one batch
        started = time.monotonic()
        """,
        tcp_cluster.address,
    )
    assert done.returncode == 0
    assert done.stderr.count("3 records were not delivered") == 1
    assert done.stderr.count("\n") == 1
    assert float(done.stdout) >= 0.2


def test_no_producer_is_made_during_exit() -> None:
    """The message says so; no thread is started any more."""
    done = run_script(
        """
        import atexit
        from splashdam import KafkaProducer

        @atexit.register
        def late():
            try:
                KafkaProducer()
            except Exception as error:
                print(error)
        """
    )
    assert done.stdout == "a producer cannot be started while the interpreter exits\n"
    assert done.stderr == ""


def test_the_process_stays_within_its_memory(tcp_cluster: Any) -> None:
    """What the process holds grows by ``buffer_memory`` and a little, while no broker answers."""
    tcp_cluster.scripted.trouble_for = silent_produce
    done = run_script(
        """
        import sys
        from splashdam import KafkaProducer
        from splashdam.errors import BufferExhaustedError, KafkaTimeoutError

        def resident_bytes():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * 4096

        producer = KafkaProducer(bootstrap_servers=sys.argv[1], max_block_ms=300)
        is_prepared = False
        while not is_prepared:  # a busy machine may need longer than `max_block_ms`
            try:
                producer.prepare("six")
                is_prepared = True
            except KafkaTimeoutError:
                pass
        before = resident_bytes()
        count = 0
        try:
            while True:
                producer.send("six", bytes(1_000))
                count += 1
        except BufferExhaustedError:
            print(count, resident_bytes() - before)
        producer.close(0)
        """,
        tcp_cluster.address,
    )
    assert done.stderr == ""
    count, grown_bytes = map(int, done.stdout.split())
    assert 28_000 < count < 34_000
    assert grown_bytes < (32 + 24) * 1024 * 1024


@pytest.mark.parametrize("pure", ["", "1"], ids=["compiled", "pure"])
def test_signal_handlers_and_finalizers_may_send(tcp_cluster: Any, pure: str) -> None:
    """Hundreds of interruptions at any point of ``send``: nothing is lost, nothing hangs, nothing twice."""
    done = run_script(
        """
        import gc, os, signal, sys, threading
        os.environ["SPLASHDAM_PURE"] = sys.argv[2]
        from splashdam import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=1, batch_size=4096)
        producer.prepare("one")
        futures, died = [], []

        def on_signal(_number, _frame):
            futures.append(producer.send("one", b"signal"))

        class Dying:
            def __init__(self):
                self.itself = self

            def __del__(self):
                futures.append(producer.send("one", b"finalizer"))
                died.append(None)

        gc.set_threshold(50)
        signal.signal(signal.SIGALRM, on_signal)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for number in range(10_000):
            if not number % 20:
                Dying()
            futures.append(producer.send("one", b"main %d" % number))
        signal.setitimer(signal.ITIMER_REAL, 0)
        while len(died) < 500:  # the sender's thread may be collecting: then this one does not
            gc.collect()
        report = producer.flush(timeout=300)
        assert report, report
        assert all(future.succeeded() for future in futures)
        offsets = sorted(future.value.offset for future in futures)
        assert offsets == list(range(len(futures))), (len(offsets), len(set(offsets)))
        producer.close()
        print(len(futures))
        """,
        tcp_cluster.address,
        pure,
    )
    assert done.stderr == ""
    values = tcp_cluster.values("one")
    assert len(values) == int(done.stdout)
    assert values.count(b"finalizer") == 500
    assert values.count(b"signal") > 10
    assert [value for value in values if value.startswith(b"main")] == [b"main %d" % n for n in range(10_000)]


def test_flush_and_close_in_a_signal_handler(tcp_cluster: Any) -> None:
    """While the program waits both work; inside an interrupted send flush raises and close does not wait."""
    done = run_script(
        """
        import signal, sys
        from splashdam import KafkaProducer
        from splashdam.errors import IllegalStateError

        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
        future = producer.send("one", b"v")

        def flush(_number, _frame):
            print(bool(producer.flush(timeout=300)))

        signal.signal(signal.SIGALRM, flush)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        print(future.get(timeout=300).offset)

        def interrupted(_number, _frame):
            for call in (producer.flush, last.get, lambda: producer.partitions_for("two")):
                try:
                    call()
                except IllegalStateError as error:
                    print("has interrupted a send" in str(error))
            producer.close()

        signal.signal(signal.SIGALRM, interrupted)
        last = producer.send("one", b"w")
        producer._core.guard.run(signal.raise_signal, signal.SIGALRM)
        print(last.get(timeout=300).offset)
        producer.close()
        """,
        tcp_cluster.address,
    )
    assert (done.stdout, done.stderr) == ("True\n0\nTrue\nTrue\nTrue\n1\n", "")
