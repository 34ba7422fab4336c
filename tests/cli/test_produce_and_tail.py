"""`splashdam produce` and `splashdam tail`, together with a broker in this process."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import kafka
import pytest
import trio
from click.testing import CliRunner
from support.running.cli_processes import first_line, run, started

from splashdam.cli.commands import splashdam
from splashdam.cli.records import delivery, reading
from splashdam.cli.records.reading import GroupProgress
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of this file; every test has a topic of its own."""
    with EmbeddedBroker(
        tmp_path_factory.mktemp("data"),
        fsync=False,
        num_partitions=2,
        group_initial_rebalance_delay_ms=0,
        config={"log.message.timestamp.after.max.ms": str(2**63 - 1)},
    ) as running:
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
        assert process.wait(timeout=500) == 130


def test_reader_that_has_seen_enough(broker: EmbeddedBroker) -> None:
    """`splashdam tail … | head -1` ends quietly."""
    produce(broker, "heads", b"line\n" * 20_000)
    with started("tail", "heads", "-b", broker.bootstrap_servers, "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=500) == 0


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
        errors = process.communicate(timeout=500)[1].decode()
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


def test_a_topic_is_copied_exactly(broker: EmbeddedBroker) -> None:
    """Binary keys, nulls, empty values, headers, timestamps and partitions; null keys and values together."""
    odd = [
        (b"\xff\x00key", b"\x00\xff\n", [("h", b"\xfe"), ("h", None), ("", b"")], 1, 1),
        (None, b"", [], 0, 2),
        (b"", None, [("\u2028", "ä\n".encode())], 1, 1_700_000_000_000),
        (b"{}", b'{"base64": "AA=="}', [], 0, 2**62),
        ("ä".encode(), b"\r\n", [], 1, 0),
    ]
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, value, headers, partition, timestamp_ms in odd:
            producer.send("origin", value, key, headers, partition, timestamp_ms)
    nothing = b'{"value": null, "partition": 0, "timestamp_ms": 5}\n'
    produce(broker, "origin", nothing, "--json")
    reading = ("-b", broker.bootstrap_servers, "--from-beginning", "-e", "--format", "json")
    lines = run("tail", "origin", *reading).stdout
    assert lines.count(b"\n") == 6
    produce(broker, "copy", lines, "--json")
    copied, original = (
        [json.loads(line) for line in text.splitlines()]
        for text in (run("tail", "copy", *reading).stdout, lines)
    )
    by_place = {(each["partition"], each["offset"]): each for each in copied}
    assert by_place == {(each["partition"], each["offset"]): {**each, "topic": "copy"} for each in original}
    assert [by_place[0, 2][name] for name in ("key", "value", "timestamp_ms")] == [None, None, 5]


def test_a_line_of_json_that_is_wrong_fails_alone(broker: EmbeddedBroker) -> None:
    """Its number is told; the others are sent."""
    lines = b'{"value": "a"}\n{"vlaue": "b"}\n{"value": "c"}\n'
    done = run("produce", "wrong", "-b", broker.bootstrap_servers, "--json", lines=lines)
    assert done.returncode == 1
    assert b"2 records delivered to wrong" in done.stderr
    assert b"the first: line 2: unknown name 'vlaue'" in done.stderr
    assert sorted(tail(broker, "wrong")) == ["a", "c"]


def test_headers_keys_and_nulls_of_lines(broker: EmbeddedBroker) -> None:
    """As kafka-console-producer's parse.headers and null.marker, and kcat's -k and -H."""
    lines = b"a:1,b:NIL\tk:v\n\tNIL:NIL\na\tk:v\n"
    options = ("--headers", "-K", ":", "--null-marker", "NIL", "-H", "every=one=1", "-p", "1")
    done = run("produce", "parts-of-lines", "-b", broker.bootstrap_servers, *options, lines=lines)
    assert b"2 records delivered" in done.stderr
    assert b"line 3: the header 'a' is not NAME:VALUE" in done.stderr
    found = [json.loads(line) for line in tail(broker, "parts-of-lines", "--format", "json")]
    every = ["every", "one=1"]
    assert [each["headers"] for each in found] == [[every, ["a", "1"], ["b", None]], [every]]
    assert [(each["key"], each["value"]) for each in found] == [("k", "v"), (None, None)]
    produce(broker, "one-key", b"x\n\n", "-k", "mine", "--null-marker", "")
    assert sorted(tail(broker, "one-key", "-f", r"%k=%S\n")) == ["mine=-1", "mine=1"]


def test_files_one_after_the_other(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """With standard input where a hyphen stands; a bad line is told with its file."""
    (tmp_path / "a").write_bytes(b"k:1\nk:2")
    (tmp_path / "b").write_bytes(b"none\n")
    files = (str(tmp_path / "a"), "-", str(tmp_path / "b"))
    options = ("-b", broker.bootstrap_servers, "-K", ":")
    done = run("produce", "files", *files, *options, lines=b"k:3\n")
    assert done.returncode == 1
    assert f"the first: {tmp_path / 'b'}, line 1: no key separator".encode() in done.stderr
    assert tail(broker, "files") == ["1", "2", "3"]


def test_whole_files(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """As kcat sends files without -l: byte for byte, with a key, and without an empty file."""
    content = b"\r\n\x00one\n\ntwo\xff\r\n"
    (tmp_path / "a.bin").write_bytes(content)
    (tmp_path / "none").touch()
    (tmp_path / "large").write_bytes(bytes(1 << 20) + b"x")
    files = [str(tmp_path / name) for name in ("a.bin", "none", "large")]
    where = ("-b", broker.bootstrap_servers, "--whole", "-k", "mine", "-p", "0")
    done = run("produce", "whole", *files, "-", *where, lines=b"from\nhere\n")
    skipped, summary = done.stderr.decode().splitlines()
    assert (done.returncode, skipped) == (1, f"{tmp_path}/none is empty: skipped")
    assert summary.startswith("2 records delivered to whole in ")
    reason = "it has more than 1,048,576 bytes; max.request.size limits a record"
    assert summary.endswith(f"; 1 not delivered; the first: {tmp_path}/large: {reason}")
    read = run("tail", "whole", "-b", broker.bootstrap_servers, "-o", "earliest", "-e", "-f", "%k:%s;")
    assert read.stdout == b"mine:" + content + b";mine:from\nhere\n;"


def test_a_line_without_an_end_filled_the_memory(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """It is cut and refused; the line behind it is sent."""
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(0, 2)
        file.write(b"\nlast\n")
    where = ("-b", broker.bootstrap_servers, "-X", "max.request.size=10000")
    done = run("produce", "cut", str(tmp_path / "zeros"), *where)
    assert b"1 not delivered; the first: " in done.stderr
    assert b"/zeros, line 1: it has more than 80,000 bytes; max.request.size" in done.stderr
    assert tail(broker, "cut") == ["last"]


def test_a_broker_that_died_meanwhile_was_waited_for_two_minutes(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--timeout` limits the wait for the next acknowledgement; a message tells of the wait."""
    produce(broker, "silent", b"x\n")
    monkeypatch.setattr(delivery, "PATIENCE_SECONDS", 0.1)
    with broker.faults.produce(topic="silent", black_hole=True):
        done = run("produce", "silent", "-b", broker.bootstrap_servers, "--timeout", "0.5", lines=b"a\nb\n")
    waiting, summary = done.stderr.decode().splitlines()
    assert waiting.startswith("waiting for the cluster, for at most 0.5 s; so far: ")
    assert summary.startswith("0 records delivered to silent in ")
    assert "; 2 not delivered; the first: nothing was acknowledged for 0.5 s; " in summary
    assert done.returncode == 1


@pytest.fixture(scope="module")
def hourly(broker: EmbeddedBroker) -> str:
    """A topic with a record an hour, from one hour after the epoch on, in partition 0."""
    lines = b"".join(
        b'{"value": "%d", "partition": 0, "timestamp_ms": %d}\n' % (hour, hour * 3_600_000)
        for hour in range(1, 7)
    )
    run("topics", "create", "hourly", "-c", "retention.ms=-1", "-b", broker.bootstrap_servers)
    produce(broker, "hourly", lines, "--json")
    return "hourly"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("-o", "-2"), "56"),
        (("-o", "-99"), "123456"),
        (("-o", "4"), "56"),
        (("-o", "99"), ""),
        (("--offset", "earliest"), "123456"),
        (("--offset", "latest"), ""),
        (("--since", "1970-01-01T05:00Z"), "56"),
        (("--since", "1970-01-01T05:00:00.001Z"), "6"),
        (("--since", "0014400000"), "456"),
        (("--since", "1d"), ""),
        (("--from-beginning", "--until", "1970-01-01T03:00Z"), "12"),
        (("--from-beginning", "--until", "15m"), "123456"),
        (("-o", "1", "--until", "1970-01-01T04:00Z", "-c", "1"), "2"),
    ],
)
def test_where_reading_begins_and_ends(
    broker: EmbeddedBroker, hourly: str, options: tuple[str, ...], found: str
) -> None:
    """By offset, by number of records, and by time."""
    done = run("tail", hourly, "-b", broker.bootstrap_servers, "-e", *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "".join(done.stdout.decode().split()) == found


def test_several_topics_and_a_pattern(broker: EmbeddedBroker) -> None:
    """A pattern leaves internal topics out; what matches nothing is told."""
    for name in ("several-a", "several-b", "not-several"):
        produce(broker, name, name.encode())
    where = ("-b", broker.bootstrap_servers, "--from-beginning", "-e", "-f", r"%t:%s\n")
    done = run("tail", "^several-", "not-several", *where)
    assert sorted(done.stdout.decode().split()) == [
        f"{n}:{n}" for n in ("not-several", "several-a", "several-b")
    ]
    assert len(run("tail", "^several-", *where, "-c", "1").stdout.splitlines()) == 1
    nothing = run("tail", "^nothing", *where)
    assert (nothing.returncode, b"no topic matches '^nothing'" in nothing.stderr) == (1, True)


def test_a_group_goes_on_where_it_was(broker: EmbeddedBroker) -> None:
    """What was written is committed, no more than that; a group with members is refused."""
    produce(broker, "grouped", b"1\n2\n3\n", "-p", "0")
    where = ("-b", broker.bootstrap_servers, "--group", "readers", "-e", "--from-beginning")
    assert run("tail", "grouped", *where, "-c", "2").stdout == b"1\n2\n"
    assert run("tail", "grouped", *where).stdout == b"3\n"
    assert run("tail", "grouped", *where).stdout == b""
    consumer = kafka.KafkaConsumer("grouped", group_id="readers", bootstrap_servers=broker.bootstrap_servers)
    for _ in range(300):
        if consumer.assignment():
            break
        consumer.poll(100)
    done = run("tail", "grouped", *where)
    assert (done.returncode, b"has 1 member, which commit its offsets" in done.stderr) == (1, True)
    consumer.close()


def test_sigterm_ends_tail_with_a_last_commit(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the process at once: what was written in the last five seconds was read again."""
    produce(broker, "ended", b"1\n2\n3\n", "-p", "0")
    reached = GroupProgress.reached

    def ending(progress: GroupProgress, where: TopicPartition, offset: int) -> None:
        reached(progress, where, offset)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(GroupProgress, "reached", ending)
    where = ("-b", broker.bootstrap_servers, "--group", "ended-readers", "--from-beginning")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        done = CliRunner().invoke(splashdam, ["tail", "ended", *where])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (done.exit_code, done.stdout) == (143, "1\n2\n3\n")
    monkeypatch.undo()
    assert CliRunner().invoke(splashdam, ["tail", "ended", *where, "-e"]).stdout == ""


async def test_a_commit_that_is_cancelled_leaves_its_offsets_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of ``tail --group`` cancels the commit of every five seconds; its offsets were forgotten."""
    committed: list[dict[TopicPartition, OffsetAndMetadata]] = []
    hangs = True

    async def commit(_client: object, _group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if hangs:
            await trio.sleep_forever()
        committed.append(offsets)

    monkeypatch.setattr(reading, "commit_offsets", commit)
    progress = GroupProgress(cast("ClusterClient", None), "g")
    progress.reached(TopicPartition("t", 0), 3)
    with trio.CancelScope() as scope:
        scope.cancel()
        await progress.commit()
    hangs = False
    progress.reached(TopicPartition("t", 1), 5)
    await progress.commit()
    await progress.commit()
    assert committed == [
        {TopicPartition("t", 0): OffsetAndMetadata(3), TopicPartition("t", 1): OffsetAndMetadata(5)}
    ]
