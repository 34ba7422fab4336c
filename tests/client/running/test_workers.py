"""Producers and the ways in which Python programs make workers: multiprocessing, gunicorn, celery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.running.process_kit import run_script


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tcp_cluster: Any, tmp_path: Path, method: str) -> None:
    """The configuration travels with plug-ins and passwords, each worker has a producer of its own; one that
    was inherited says so."""
    (tmp_path / "plug_ins.py").write_text(
        textwrap.dedent("""
        from splashdam import JsonSerializer, KafkaProducer, ProducerInterceptor, RoundRobinPartitioner

        class Counting(ProducerInterceptor):
            seen = 0

            def on_send(self, record):
                self.seen += 1
                return record

        def own(config, results):
            with KafkaProducer(**config) as producer:
                future = producer.send("six", {"from": "worker"})
                future.get(timeout=300)
            results.put(config["interceptors"][0].seen)

        def inherited(results):
            from __main__ import producer
            try:
                producer.send("six", 1)
            except Exception as error:
                results.put(str(error))
            producer.close()
        """)
    )
    script = """
    import multiprocessing, sys
    sys.path.insert(0, sys.argv[2])
    from splashdam import JsonSerializer, KafkaProducer, RoundRobinPartitioner
    from plug_ins import Counting, inherited, own

    context = multiprocessing.get_context(sys.argv[3])
    producer = KafkaProducer(
        bootstrap_servers=sys.argv[1],
        value_serializer=JsonSerializer(),
        partitioner=RoundRobinPartitioner(),
        interceptors=[Counting()],
    )
    producer.send("six", {"from": "parent"}).get(timeout=300)
    results = context.SimpleQueue()
    calls = [(own, (producer.config, results))]
    if sys.argv[3] == "fork":
        calls.append((inherited, (results,)))
    for function, arguments in calls:
        worker = context.Process(target=function, args=arguments)
        worker.start()
        print(results.get())
        worker.join()
        assert worker.exitcode == 0, worker.exitcode
    producer.send("six", {"from": "parent"}).get(timeout=300)
    producer.close()
    """
    done = run_script(script, tcp_cluster.address, str(tmp_path), method)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "2"  # it had seen one in the parent
    if method == "fork":
        assert "create the producer in the worker, after the fork" in lines[1]
    values = [value for partition in range(6) for value in tcp_cluster.values("six", partition)]
    assert sorted(values) == [b'{"from": "parent"}'] * 2 + [b'{"from": "worker"}']


def test_a_worker_that_is_forked_from_a_worker(tcp_cluster: Any) -> None:
    """Each generation has its own; those of its elders are not closed by it, nor waited for at its exit."""
    script = """
    import os, sys
    from splashdam import KafkaProducer

    producers = []
    for generation in range(3):
        producers.append(KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000))
        producers[-1].send("one", b"%d" % generation)
        pid = os.fork()
        if pid:
            _, status = os.waitpid(pid, 0)
            sys.exit(os.waitstatus_to_exitcode(status))
        for inherited in producers:
            try:
                inherited.send("one", b"never")
            except Exception as error:
                assert "belongs to process" in str(error)
            else:
                raise AssertionError
    """
    done = run_script(script, tcp_cluster.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(tcp_cluster.values("one")) == [b"0", b"1", b"2"]


APP = """
import os
from splashdam import KafkaProducer
from splashdam.errors import IllegalStateError

options = {"bootstrap_servers": os.environ["SERVERS"]}
preloaded = KafkaProducer(**options)
preloaded.send("one", b"preloaded").get(timeout=300)
own = None


def app(environ, start_response):
    global own
    try:
        preloaded.send("one", b"never")
        text = "sent by a preloaded producer"
    except IllegalStateError as error:
        text = str(error)
    if own is None:
        own = KafkaProducer(**options)
    own.send("one", b"from a worker").get(timeout=300)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]
"""


@pytest.mark.slow
def test_gunicorn(tcp_cluster: Any, tmp_path: Path) -> None:
    """An application that is preloaded and then forked: each worker is told, and its own producer works."""
    pytest.importorskip("gunicorn")
    (tmp_path / "shop.py").write_text(APP)
    socket_path = tmp_path / "socket"
    command = [
        *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--graceful-timeout", "20"),
        *("--bind", f"unix:{socket_path}", "--no-control-socket", "shop:app"),
    ]
    environment = {**os.environ, "SERVERS": tcp_cluster.address, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as gunicorn:
        assert gunicorn.stderr is not None
        said = []
        for line in gunicorn.stderr:
            said.append(line)
            if "Booting worker" in line:
                break
        answers = [ask(socket_path) for _ in range(6)]
        gunicorn.send_signal(signal.SIGTERM)
        said += gunicorn.stderr.readlines()
    assert gunicorn.returncode == 0, said
    assert all("create the producer in the worker, after the fork" in each for each in answers), (
        answers,
        said,
    )
    assert not any("Traceback" in line for line in said), said
    assert tcp_cluster.values("one") == [b"preloaded"] + [b"from a worker"] * 6


def ask(socket_path: Path) -> str:
    """One HTTP request."""
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(socket_path))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


TASKS = """
import os
from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown
from splashdam import KafkaProducer
from splashdam.errors import IllegalStateError

app = Celery(broker="filesystem://", backend="file://" + os.environ["FOLDER"])
app.conf.broker_transport_options = {
    "data_folder_in": os.environ["FOLDER"],
    "data_folder_out": os.environ["FOLDER"],
    "control_folder": os.environ["FOLDER"],
}
options = {"bootstrap_servers": os.environ["SERVERS"]}
module_level = KafkaProducer(**options)
module_level.send("one", b"module level").get(timeout=300)
own = None


@worker_process_init.connect
def start(**_):
    global own
    own = KafkaProducer(**options)


@app.task(name="send")
def send(number):
    try:
        module_level.send("one", b"never")
    except IllegalStateError as error:
        own.send("one", b"from a worker").get(timeout=300)
        return str(error)
"""


@pytest.mark.slow
def test_celery(tcp_cluster: Any, tmp_path: Path) -> None:
    """The prefork pool: a producer of the module says what to do, one of ``worker_process_init`` works."""
    pytest.importorskip("celery")
    folder = tmp_path / "queue"
    folder.mkdir()
    (tmp_path / "tasks.py").write_text(TASKS)
    environment = {
        **os.environ,
        "SERVERS": tcp_cluster.address,
        "FOLDER": str(folder),
        "PYTHONPATH": str(tmp_path),
    }
    pool = ["--pool", "prefork", "--concurrency", "2", "--without-gossip", "--without-mingle"]
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--without-heartbeat", *pool]
    asking = """
    import tasks
    for result in [tasks.send.delay(number) for number in range(4)]:
        print(result.get(timeout=120))
    """
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as worker:
        try:
            answers = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(asking)],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
        finally:
            worker.send_signal(signal.SIGTERM)
            said = worker.communicate(timeout=500)[0]
    assert answers.stdout.count("create the producer in the worker, after the fork") == 4, (answers, said)
    assert tcp_cluster.values("one").count(b"from a worker") == 4
    assert b"never" not in tcp_cluster.values("one")
