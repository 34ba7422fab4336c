"""What tutorials and how-to guides show works: their programs run, their commands print what they say."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.running.doc_pages import Block, blocks, commands, run, write_files
from support.security.security_kit import secure_broker

from splashdam import EmbeddedBroker
from splashdam.aio import AsyncioKafkaProducer
from splashdam.cli.commands import splashdam
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.errors import KafkaError, ProducerFencedError

pytest_plugins = ["pytester"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the reader stands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_command(command: str, printed: list[str], servers: str) -> None:
    """In this process; what talks to a cluster is told where it is."""
    program, name, *arguments = shlex.split(command)
    assert program == "splashdam"
    if name in {"topics", "tail", "produce"}:
        arguments += ["-b", servers]
    done = CliRunner().invoke(splashdam, [name, *arguments])
    assert done.exit_code == 0, done.output
    if printed:
        assert done.output.splitlines() == printed


def test_the_first_topic(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the broker's start to the files that it leaves; the page stops it before it looks at them."""
    page = "tutorials/first-topic.md"
    install, *steps = blocks(page, "console", "python")
    assert [command for command, _ in commands(install.text)] == [
        "pip install 'splashdam[cli]'",
        "splashdam broker --data ./data",
    ]
    with EmbeddedBroker("./data", fsync=False) as broker:
        servers = broker.bootstrap_servers
        for step in steps:
            if step.language == "python":
                run(Block("python", step.text.replace("localhost:9092", servers)), page)
                continue
            for command, printed in commands(step.text):
                if "./data" in command:
                    broker.stop()
                run_command(command, printed, servers)
    assert capsys.readouterr().out.splitlines() == [
        "orders, partition 1, offset 0",
        "everything has arrived",
        "the last one is at offset 1000",
        "MessageTooLargeError",
        "and the next one has offset 1001",
        "1002 orders",
    ]


def run_suite(pytester: pytest.Pytester, page: str) -> pytest.RunResult:
    """The page's files, run as their reader runs them: warnings are errors but kafka-python's own."""
    assert write_files(page, pytester.path)
    pytester.makeini("[pytest]\nfilterwarnings = error\n ignore:(read|open)_:DeprecationWarning")
    pytester.syspathinsert()
    return pytester.runpytest("-p", "no:cacheprovider", "-p", "no:asyncio")


def test_the_first_test(pytester: pytest.Pytester) -> None:
    """All tests of the page pass; it says how many they are."""
    page = "tutorials/first-test.md"
    run_suite(pytester, page).assert_outcomes(passed=5)
    said = [printed for block in blocks(page, "console") for _, printed in commands(block.text)]
    assert said == [["1 passed"], ["4 passed"]]


def test_from_laptop_to_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same program with each file but the cluster's, which is only read."""
    page = "tutorials/laptop-to-cluster.md"
    program, cluster = blocks(page, "python")
    embedded, on_this_machine, on_the_cluster = blocks(page, "properties")
    properties = folder / "client.properties"
    properties.write_text(embedded.text)
    run(program, page)
    with secure_broker(folder / "kafka", protocol="SASL_PLAINTEXT") as broker:
        broker.users.add("anna", "tea")
        text = on_this_machine.text.replace("localhost:9092", broker.bootstrap_servers)
        properties.write_text(text)
        run(program, page)
        properties.write_text(text.replace('"tea"', '"milk"'))
        with pytest.raises(SystemExit, match="credentials"):
            run(program, page)
    (folder / "ca.pem").write_text("")
    properties.write_text(on_the_cluster.text.replace("/etc/kafka", str(folder)))
    with pytest.raises(ValueError, match=r"ca\.pem"):
        run(program, page)
    run(cluster, page)
    assert capsys.readouterr().out.splitlines() == [
        *["1000 orders are safe"] * 2,
        "after the leader's death: 1",
    ]


def test_bulk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lists, an error in the middle, and a table."""
    pytest.importorskip("pyarrow")
    page = "how-to/bulk.md"
    for block in blocks(page, "python"):
        run(block, page)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("3 delivered; the last is at ")
    assert printed[1].startswith("skipped record 2: ")
    assert printed[2] == "all others have arrived"
    assert printed[3] == "3 rows"


def test_transactions(folder: Path) -> None:
    """What the three programs have committed is there, and each invoice once."""
    page = "how-to/transactions.md"
    for block in blocks(page, "python"):
        run(block, page)
    for place, topic, count in [("data", "ledger", 1), ("data", "invoices", 2), ("billing", "invoices", 2)]:
        command = f"tail {topic} --from-beginning --exit-at-end -b embedded:./{place}"
        done = CliRunner().invoke(splashdam, [*command.split(), "--isolation", "read_committed"])
        assert len(done.output.splitlines()) == count, done.output


def test_asyncio(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The programs that send, and the worker, whose successors bill each order once."""
    pytest.importorskip("aiokafka")
    page = "how-to/asyncio.md"
    first, transaction, worker = blocks(page, "python")
    run(first, page)
    run(transaction, page)
    assert capsys.readouterr().out.splitlines() == ["0", "1000"]
    work = run(worker, page, {"__name__": "worker"})["work"]
    with EmbeddedBroker("./billing", num_partitions=1, fsync=False) as broker:
        asyncio.run(asyncio.wait_for(replace_workers(broker.bootstrap_servers, work), 500))


async def replace_workers(servers: str, work: Any) -> None:
    """One was cut off in a transaction, the next one is cancelled, the last one gets the rest."""
    from aiokafka import AIOKafkaConsumer

    cut_off = AsyncioKafkaProducer(bootstrap_servers=servers, transactional_id="billing-0", linger_ms=0)
    shop = AsyncioKafkaProducer(bootstrap_servers=servers, linger_ms=0)
    committed = AIOKafkaConsumer(
        "invoices",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with cut_off, shop:
        assert await shop.partitions_for("orders") == {0}
        await cut_off.begin_transaction()
        await cut_off.send_and_wait("invoices", b"never seen")
        worker = asyncio.create_task(work(servers, 0))
        with suppress(KafkaError):  # locked out, though there is no order to begin a transaction for
            while True:
                await cut_off.send_and_wait("invoices", b"never seen")
        with pytest.raises(ProducerFencedError):
            await cut_off.abort_transaction()
        async with committed:
            for half in range(0, 20, 10):
                orders = [b"%d" % number for number in range(half, half + 10)]
                await shop.send_many("orders", orders, headers=[("trace", b"1")])
                invoices = [await committed.getone() for _ in orders]
                assert [each.value for each in invoices] == [b"invoice for " + order for order in orders]
                assert {each.headers for each in invoices} == {(("trace", b"1"),)}
                worker.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await worker
                if half == 0:
                    worker = asyncio.create_task(work(servers, 0))


def test_settings_of_the_container_page_are_accepted() -> None:
    """Each setting in the table is one of Kafka's that the broker takes."""
    page = (blocks("how-to/instead-of-bitnami.md", "console")[0].text, *table("how-to/instead-of-bitnami.md"))
    named = dict(re.findall(r"-X ([a-z.]+)=([\w:/.]+)", "\n".join(page)))
    assert len(named) >= 5
    BrokerSettings.from_options({}, {**named, "listeners": "PLAINTEXT://0.0.0.0:9092"})


def table(page: str) -> list[str]:
    from support.running.doc_pages import DOCS

    return [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| ")]


@pytest.mark.slow
def test_the_script_that_waits_for_the_broker(folder: Path) -> None:
    """As a build would run it."""
    (script,) = blocks("how-to/instead-of-bitnami.md", "bash")
    path = f"PATH={Path(sys.executable).parent}:$PATH\n"
    done = subprocess.run(
        ["bash", "-eu", "-c", path + script.text], capture_output=True, text=True, timeout=500, check=False
    )
    assert re.fullmatch(r"created orders\nready at 127\.0\.0\.1:\d+\n", done.stdout), done.stderr


def test_instead_of_testcontainers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture of the page in a suite; the programs before and after are of one piece."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    page = "how-to/instead-of-testcontainers.md"
    fixture, *others = blocks(page, "python")
    place_order = """
import confluent_kafka


def place_order(to, *arguments):
    if isinstance(to, str):
        to = confluent_kafka.Producer({"bootstrap.servers": to})
    topic, order = arguments if len(arguments) == 2 else ("orders", *arguments)
    to.produce(topic, order)
    assert to.flush(300) == 0


"""
    pytest.importorskip("confluent_kafka")
    theirs = [block for block in others if "testcontainers" in block.text or "mockafka" in block.text]
    ours = [block for block in others if block not in theirs]
    assert (len(theirs), len(ours)) == (2, 2)
    for number, block in enumerate(theirs):
        compile(block.text, f"{page}, {number}", "exec")
    pytester.makepyfile(
        test_fixture=fixture.text, test_one=place_order + ours[0].text, test_two=place_order + ours[1].text
    )
    pytester.runpytest("-p", "no:cacheprovider", "-p", "no:asyncio").assert_outcomes(passed=3)
