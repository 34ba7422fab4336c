"""`splashdam produce` and `splashdam tail`, together with a broker in this process."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running.cli_processes import first_line, run, started

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of this file; every test has a topic of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("data"), fsync=False, num_partitions=2) as running:
        yield running


def produce(broker: EmbeddedBroker, topic: str, lines: bytes, *options: str) -> str:
    """Runs `splashdam produce`; what it wrote to standard error."""
    done = run("produce", topic, "-b", broker.bootstrap_servers, *options, lines=lines)
    assert done.stdout == b""
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


def tail(broker: EmbeddedBroker, topic: str, *options: str) -> list[str]:
    """Runs `splashdam tail --from-beginning --exit-at-end`; the lines of its output."""
    done = run("tail", topic, "-b", broker.bootstrap_servers, "--from-beginning", "--exit-at-end", *options)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def test_lines_come_back(broker: EmbeddedBroker) -> None:
    """Every line is a record; an empty one and the last one without a newline, too."""
    summary = produce(broker, "lines", "one\n\nzwölf\r\nlast".encode(), "--partition", "0")
    assert summary.startswith("4 records delivered to lines in ")
    assert tail(broker, "lines") == ["one", "", "zwölf", "last"]


def test_keys_decide_the_partition(broker: EmbeddedBroker) -> None:
    """Records of one key stay together and in order."""
    lines = b"".join(b"user-%d\tvisit %d\n" % (number % 4, number) for number in range(40))
    produce(broker, "keyed", lines, "--key-separator", r"\t")
    found = [json.loads(line) for line in tail(broker, "keyed", "--format", "json")]
    places = {record["key"]: record["partition"] for record in found}
    assert set(places) == {"user-0", "user-1", "user-2", "user-3"}
    assert all(record["partition"] == places[record["key"]] for record in found)
    for key in places:
        visits = [int(record["value"].split()[1]) for record in found if record["key"] == key]
        assert visits == sorted(visits)
        assert len(visits) == 10


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(broker: EmbeddedBroker, codec: str) -> None:
    """Compressed records are readable."""
    produce(broker, f"packed-{codec}", b"to be squeezed\n" * 100, "--compression", codec)
    assert tail(broker, f"packed-{codec}") == ["to be squeezed"] * 100


def test_one_partition(broker: EmbeddedBroker) -> None:
    """`--partition` chooses what is written and what is read."""
    for number in (0, 1):
        produce(broker, "parts", b"in %d\n" % number, "--partition", str(number))
    assert tail(broker, "parts", "--partition", "1") == ["in 1"]


def test_max_messages(broker: EmbeddedBroker) -> None:
    """`--max-messages` ends the reading."""
    produce(broker, "many", b"x\n" * 50)
    assert len(tail(broker, "many", "--max-messages", "7")) == 7


def test_full_format(broker: EmbeddedBroker) -> None:
    """`--format full` shows where each record lies."""
    produce(broker, "full", b"k:v\n", "--key-separator", ":", "--partition", "1")
    (line,) = tail(broker, "full", "--format", "full")
    assert line.startswith("full-1@0 ")
    assert line.endswith(" k: v")


def test_json_tells_everything(broker: EmbeddedBroker) -> None:
    """`--format json` shows key, headers and timestamp; bytes that are no text are in base64."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        headers = [("h", b"1"), ("nothing", None)]
        producer.send("everything", b"\xff\x00", None, headers, partition=0, timestamp_ms=1_000)
        producer.send("everything", None, b"gone", partition=0, timestamp_ms=2_000)
        producer.flush()
    assert [json.loads(line) for line in tail(broker, "everything", "--format", "json")] == [
        {
            "topic": "everything",
            "partition": 0,
            "offset": 0,
            "timestamp_ms": 1000,
            "key": None,
            "value": {"base64": "/wA="},
            "headers": [["h", "1"], ["nothing", None]],
        },
        {
            "topic": "everything",
            "partition": 0,
            "offset": 1,
            "timestamp_ms": 2000,
            "key": "gone",
            "value": None,
            "headers": [],
        },
    ]


def test_new_records_are_followed(broker: EmbeddedBroker) -> None:
    """Without `--from-beginning` only what comes later is shown, as soon as it is there."""
    produce(broker, "news", b"old\n")
    with started("tail", "news", "-b", broker.bootstrap_servers) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"following news from its end\n"
        produce(broker, "news", b"new\n")
        assert first_line(process) == "new"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_reader_that_has_seen_enough(broker: EmbeddedBroker) -> None:
    """`splashdam tail … | head -1` ends quietly."""
    produce(broker, "heads", b"line\n" * 20_000)
    with started("tail", "heads", "-b", broker.bootstrap_servers, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 0


def test_lines_that_cannot_be_sent(broker: EmbeddedBroker) -> None:
    """One bad line fails alone, is counted, and makes the status 1."""
    options = ("-b", broker.bootstrap_servers, "--key-separator", ":")
    done = run("produce", "partly", *options, lines=b"a:1\nno separator\nb:2\n")
    assert done.returncode == 1
    text = done.stderr.decode()
    assert text.startswith("2 records delivered to partly in ")
    assert "1 not delivered; the first: line 2: no key separator ':'" in text
    assert sorted(tail(broker, "partly")) == ["1", "2"]


def test_records_that_the_broker_refuses(broker: EmbeddedBroker) -> None:
    """A record above the broker's limit makes the status 1, the others arrive."""
    lines = b"small\n" + b"x" * 2_000_000 + b"\nsmall\n"
    options = ("-b", broker.bootstrap_servers, "-X", "max.request.size=4000000")
    done = run("produce", "large", *options, lines=lines)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("2 records delivered to large in ")
    assert "MessageTooLargeError" in done.stderr.decode()


def test_no_broker() -> None:
    """An address where nobody listens is named; the status is 1."""
    done = run("produce", "t", "-b", "127.0.0.1:1", "-X", "max.block.ms=300", lines=b"lost\nlost\n")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_embedded_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`embedded:DIR` needs no broker to be started."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        done = run("produce", "t", "-b", "embedded:./data", lines=b"x\n")
        assert done.returncode == 0, done.stderr
    options = ("-b", "embedded:./data", "--from-beginning", "--exit-at-end")
    assert run("tail", "t", *options).stdout == b"x\nx\n"


def test_unknown_topic(broker: EmbeddedBroker) -> None:
    """Reading a topic that does not exist is a message, and does not create it."""
    for _ in range(2):
        done = run("tail", "unheard-of", "-b", broker.bootstrap_servers)
        assert done.returncode == 1
        assert "unheard-of" in done.stderr.decode()


def test_unknown_partition(broker: EmbeddedBroker) -> None:
    """A partition that does not exist is named at once."""
    produce(broker, "two", b"x\n")
    done = run("tail", "two", "-b", broker.bootstrap_servers, "--partition", "7")
    assert done.returncode == 1
    assert "two has no partition 7" in done.stderr.decode()


def test_an_interrupted_produce_delivers_the_lines_it_has_read(broker: EmbeddedBroker) -> None:
    """Ctrl-C while waiting for input: what was read is delivered, the status is 130."""
    produce(broker, "partial", b"before\n", "--partition", "0")
    options = ("-b", broker.bootstrap_servers, "--partition", "0")
    with started("produce", "partial", *options) as process:
        assert process.stdin is not None
        process.stdin.write(b"kept\n")
        process.stdin.flush()
        read = run("tail", "partial", *options, "--from-beginning", "--max-messages", "2")
        assert read.stdout == b"before\nkept\n"
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 130
    assert errors.startswith("1 record delivered to partial in ")
    assert "interrupted" in errors


def test_isolation(tmp_path: Path) -> None:
    """`--isolation read_committed` leaves out the aborted and the open transaction of Kafka's directory."""
    golden = Path(__file__).resolve().parent.parent / "golden/kafka-4.3.1/transactions-0"
    shutil.copytree(golden, tmp_path / "transactions-0", copy_function=shutil.copyfile)
    with EmbeddedBroker(tmp_path, fsync=False) as kafkas:
        everything = tail(kafkas, "transactions")
        committed = tail(kafkas, "transactions", "--isolation", "read_committed")
    assert (len(everything), len(committed)) == (28, 16)
    assert set(committed) < set(everything)
