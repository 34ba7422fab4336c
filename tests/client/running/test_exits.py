"""Every way in which a process ends while a producer is open: what is delivered, and what is printed."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest
from support.running.process_kit import run_script, silent_produce

HEAD = """
import atexit, os, signal, sys, threading, time
from splashdam import KafkaProducer
from splashdam.errors import IllegalStateError
producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, exit_timeout_ms=20_000)
producer.prepare("one")
producer.send("one", b"last")
"""

ENDS = {
    "end of the script": ("", 0, ""),
    "closed": ("producer.close()", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "unhandled exception": ("raise LookupError('mine')", 1, "LookupError: mine"),
    "sys.exit in a thread": (
        "thread = threading.Thread(target=sys.exit, args=(5,)); thread.start(); thread.join()",
        0,
        "",
    ),
    "exception in a thread": (
        "thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()",
        0,
        "ZeroDivisionError: division by zero",
    ),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
    "Ctrl-C in the block": (
        "with producer:\n    signal.raise_signal(signal.SIGINT)",
        -signal.SIGINT,
        "KeyboardInterrupt",
    ),
    "SIGTERM turned into an exit": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4)); signal.raise_signal(signal.SIGTERM)",
        4,
        "",
    ),
    "sends in an exit handler": ("atexit.register(lambda: producer.send('one', b'last'))", 0, ""),
    "closes in an exit handler": ("atexit.register(producer.close)", 0, ""),
    "a thread that is not a daemon": (
        "threading.Thread(target=lambda: (threading.main_thread().join(), producer.flush())).start()",
        0,
        "",
    ),
}
ABRUPT = {
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    "os._exit": ("os._exit(6)", 6),
    "os.abort": ("os.abort()", -signal.SIGABRT),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_sent_is_delivered(tcp_cluster: Any, end: str) -> None:
    """Nothing but the program's own error is printed, and its status is its own."""
    tail, status, words = ENDS[end]
    done = run_script(HEAD + tail, tcp_cluster.address)
    assert done.returncode == status
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert (lines[-1].strip() if lines else "") == words
    of_ours = done.stderr.replace(sys.base_prefix, "")  # Python itself may live in a folder of our name
    assert "splashdam" not in of_ours or "Ctrl-C" in end
    assert set(tcp_cluster.values("one")) == {b"last"}


@pytest.mark.parametrize("end", ABRUPT)
def test_an_end_that_lets_nobody_act(tcp_cluster: Any, end: str) -> None:
    """Python runs no exit handlers then: what lingers is lost, silently and at once."""
    tail, status = ABRUPT[end]
    done = run_script(HEAD + tail, tcp_cluster.address)
    assert (done.returncode, done.stdout) == (status, "")
    assert "splashdam" not in done.stderr or "Fatal Python error: Aborted" in done.stderr
    assert tcp_cluster.values("one") == []


def test_an_exit_handler_that_was_there_before_the_producer(tcp_cluster: Any) -> None:
    """It runs after the producer was closed, and is told so."""
    script = """
    import atexit, sys
    from splashdam import KafkaProducer

    @atexit.register
    def late():
        try:
            producer.send("one", b"late")
        except Exception as error:
            print(error)

    producer = KafkaProducer(bootstrap_servers=sys.argv[1])
    producer.send("one", b"in time")
    """
    done = run_script(script, tcp_cluster.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the producer is closed\n", "")
    assert tcp_cluster.values("one") == [b"in time"]


def test_daemon_threads_that_go_on_sending(tcp_cluster: Any) -> None:
    """They are told that it is over; what they have sent before arrives, in order, and nothing is printed."""
    script = """
    import sys, threading
    from splashdam import KafkaProducer
    from splashdam.errors import IllegalStateError

    producer = KafkaProducer(bootstrap_servers=sys.argv[1], exit_timeout_ms=60_000)
    producer.prepare("six")
    sending = threading.Barrier(4)

    def send(partition):
        number = 0
        while True:
            try:
                producer.send("six", b"%d" % number, partition=partition)
            except IllegalStateError:
                return
            number += 1
            if number == 100:
                sending.wait()

    for partition in range(3):
        threading.Thread(target=send, args=(partition,), daemon=True).start()
    sending.wait()
    """
    done = run_script(script, tcp_cluster.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for partition in range(3):
        values = tcp_cluster.values("six", partition)
        assert len(values) >= 100
        assert values == [b"%d" % number for number in range(len(values))]


def test_importing_it_does_nothing() -> None:
    """No thread, no descriptor, no exit handler but the one against forks."""
    script = """
    import os, threading, trio
    before = set(os.listdir("/proc/self/fd"))
    from splashdam import AsyncKafkaProducer, EmbeddedBroker, KafkaProducer, errors
    assert set(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == 1
    """
    done = run_script(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_producers_that_come_and_go_leave_nothing(tcp_cluster: Any) -> None:
    """200 of them, that have and have not sent: no descriptor, no thread."""
    script = """
    import gc, os, sys, threading
    from splashdam import KafkaProducer

    def held():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    for number in range(205):
        if number == 5:
            before = held()
        producer = KafkaProducer(bootstrap_servers=sys.argv[1])
        if number % 2:
            producer.send("one", b"v").get(timeout=300)
        producer.close()
    # trio keeps threads that resolve names for a while, to use them again
    print(held()[0] - before[0], held()[1] - before[1])
    """
    done = run_script(script, tcp_cluster.address, timeout=300)
    assert done.stderr == ""
    descriptors, threads = map(int, done.stdout.split())
    assert max(descriptors, threads) < 20  # one each, or one for each that has sent, would be 100


@pytest.mark.parametrize("cluster", ["works", "is away", "has timed out"])
def test_an_idle_producers_thread_sleeps(tcp_cluster: Any, closed_port: str, cluster: str) -> None:
    """Counted in switches of its thread, which a loaded machine makes fewer, in a second after the first."""
    script = """
    import sys, time
    from pathlib import Path
    from splashdam import KafkaProducer

    address, cluster = sys.argv[1:]
    times = {
        "works": {},
        "is away": {"max_block_ms": 50},
        "has timed out": {"delivery_timeout_ms": 50, "request_timeout_ms": 40, "linger_ms": 0},
    }[cluster]
    producer = KafkaProducer(bootstrap_servers=address, exit_timeout_ms=0, **times)
    if cluster == "works":
        producer.send("one", b"v").get(timeout=300)
    elif cluster == "has timed out":
        producer.prepare("one")
        try:
            producer.send("one", b"v").get(timeout=300)
        except Exception as error:
            pass
    else:
        try:
            producer.send("one", b"v")
        except Exception as error:
            pass

    def switches():
        status = Path(f"/proc/self/task/{producer._loop.thread.native_id}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)

    time.sleep(0.3)
    before = switches()
    time.sleep(1)
    print(switches() - before)
    producer.close(0)
    """
    if cluster == "has timed out":
        tcp_cluster.scripted.trouble_for = silent_produce
    address = closed_port if cluster == "is away" else tcp_cluster.address
    done = run_script(script, address, cluster)
    assert done.stderr == ""
    assert int(done.stdout) < 60


@pytest.mark.parametrize("step", ["begin_close_at_exit", "finish_close_at_exit"])
@pytest.mark.parametrize("broken", [0, 1])
def test_one_producer_that_could_not_be_closed_kept_the_others_open(
    tcp_cluster: Any, step: str, broken: int
) -> None:
    """Their records were lost. Each failure is one line, and the status is the program's."""
    done = run_script(
        """
        import errno, os, sys
        from splashdam import KafkaProducer
        from splashdam.client.running.core import ProducerCore

        names, broken, step = ["first", "second", "third"], int(sys.argv[2]), sys.argv[3]
        real = getattr(ProducerCore, step)

        def fail_for_two(core, *rest):
            if core.client_id in names[broken:broken + 2]:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return real(core, *rest)

        setattr(ProducerCore, step, fail_for_two)
        producers = [
            KafkaProducer(bootstrap_servers=sys.argv[1], client_id=name, linger_ms=60_000) for name in names
        ]
        for name, producer in zip(names, producers):
            producer.prepare("one")
            producer.send("one", name.encode())
        """,
        tcp_cluster.address,
        str(broken),
        step,
    )
    names = ["first", "second", "third"]
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (0, "", 2)
    for name, line in zip(names[broken : broken + 2], lines, strict=True):
        assert line.startswith(
            f"{name}: the exit of the interpreter could not close the producer: OSError: [Errno 9] Bad file"
        )
    (healthy,) = set(names) - set(names[broken : broken + 2])
    assert healthy.encode() in tcp_cluster.values("one")
