"""Groups of the consumer protocol that we keep, as Kafka's tools, broker and console consumer see them."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.consumer_group_talk import WireMember, describe, settle
from support.clients.foreign_groups import COMMIT, Committed
from support.kafka.kafka_jars import KafkaBroker, classpath, dump_log, need_tools, run_tool
from support.kafka.kafka_reading import make_topic

from splashdam import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.embedded_broker.groups.consumer import records
from splashdam.wire.fields import ArrayType, StructType
from splashdam.wire.message import Struct
from splashdam.wire.messages.consumer_group_describe import DescribedGroup
from splashdam.wire.persisted import Persisted

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
GROUP = "readers"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
VALUES: dict[str, type[Persisted]] = {
    "ConsumerGroupMetadata": records.GroupMetadataValue,
    "ConsumerGroupPartitionMetadata": records.PartitionMetadataValue,
    "ConsumerGroupMemberMetadata": records.MemberMetadataValue,
    "ConsumerGroupTargetAssignmentMetadata": records.TargetAssignmentMetadataValue,
    "ConsumerGroupTargetAssignmentMember": records.TargetAssignmentMemberValue,
    "ConsumerGroupCurrentMemberAssignment": records.CurrentMemberAssignmentValue,
    "ConsumerGroupRegularExpression": records.RegularExpressionValue,
}


@pytest.fixture
def version(version: str) -> str:
    """A Kafka that has these groups for good."""
    if version.startswith("3."):
        pytest.skip("the consumer protocol is finished since Kafka 4.0")
    return version


async def written_by_us(data: Path) -> DescribedGroup:
    """A member by name and a static one by pattern, reconciled; they do not leave."""
    with EmbeddedBroker(data, offsets_topic_num_partitions=1, num_partitions=4) as broker:
        make_topic(broker.bootstrap_servers, "t")
        async with await _connected(broker.bootstrap_servers) as stream:
            return await _reconciled(Talk(stream))


async def _connected(servers: str) -> trio.SocketStream:
    host, port = servers.split(":")
    return await trio.open_tcp_stream(host, int(port))


async def _reconciled(talk: Talk) -> DescribedGroup:
    first = WireMember(talk, "m1", "t", group_id=GROUP)
    second = WireMember(
        talk,
        "m2",
        group_id=GROUP,
        instance_id="i2",
        subscribed_topic_regex="t.*",
        server_assignor="range",
    )
    await first.beat()
    await second.beat()
    await settle(first, second)
    return await describe(talk, GROUP)


async def test_kafka_dump_log_decodes_our_groups(version: str, tmp_path: Path) -> None:
    """All kinds of records, each as JSON with what we meant."""
    await written_by_us(tmp_path)
    (log,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    said = dump_log(version, log, options=("--offsets-decoder",))
    assert all(f'key: {{"type":"{kind}"' in said for kind in (3, 4, 5, 6, 7, 8, 16))
    assert '"instanceId":"i2"' in said
    assert '"subscribedTopicRegex":"t.*"' in said
    assert "isvalid: false" not in said


async def test_a_real_broker_takes_our_group_over(broker: KafkaBroker, tmp_path: Path) -> None:
    """Epochs and members are what they were."""
    ours = await written_by_us(tmp_path / "ours")
    make_topic(broker.bootstrap_servers, "t")
    COMMIT["kafka-python"](broker.bootstrap_servers, "first", "t", Committed(1, ""))  # makes their topic
    broker.stop()
    for theirs in broker.data.glob("__consumer_offsets-*"):
        for file in theirs.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for log in (tmp_path / "ours" / "__consumer_offsets-0").glob("*.log"):
            shutil.copy(log, theirs)
    (broker.data / ".kafka_cleanshutdown").unlink()
    broker.start()
    COMMIT["kafka-python"](broker.bootstrap_servers, "first", "t", Committed(1, ""))  # waits until it is read
    async with await _connected(broker.bootstrap_servers) as stream:
        found = await describe(Talk(stream), GROUP)
    assert (found.error_code, found.group_state) == (0, "Stable")
    assert (found.group_epoch, found.assignment_epoch) == (ours.group_epoch, ours.assignment_epoch)
    assert {(each.member_id, each.instance_id, each.member_epoch) for each in found.members} == {
        (each.member_id, each.instance_id, each.member_epoch) for each in ours.members
    }


def test_kafkas_console_consumer_reads_with_the_new_protocol(version: str, tmp_path: Path) -> None:
    """Its command describes and lists the group."""
    need_tools(version)
    with EmbeddedBroker(tmp_path, num_partitions=4) as broker:
        servers = ["--bootstrap-server", broker.bootstrap_servers]
        make_topic(broker.bootstrap_servers, "t")
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("t", b"record-%d" % number)
        said = run_tool(
            *(version, CONSOLE, *servers, "--topic", "t", "--from-beginning", "--group", GROUP),
            *("--max-messages", "20", "--timeout-ms", "30000"),
            *("--consumer-property", "group.protocol=consumer"),
        )
        read = [line for line in said.splitlines() if line.startswith("record-")]
        assert sorted(read) == sorted(f"record-{number}" for number in range(20))
        listed = run_tool(version, COMMAND, *servers, "--list", "--type", "--state")
        assert [line.split() for line in listed.splitlines() if GROUP in line] == [
            [GROUP, "Consumer", "Empty"]
        ]
        described = run_tool(version, COMMAND, *servers, "--describe", "--group", GROUP)
        assert described.count(f"{GROUP} ") == 1


@pytest.mark.parametrize("name", VALUES)
def test_values_are_declared_as_kafka_declares_them(version: str, name: str) -> None:
    """By the schemas in Kafka's own jar, which hold them since 4.0."""
    (jar,) = Path(classpath(version)).parent.glob(f"kafka-group-coordinator-{version}.jar")
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"common/message/{name}Value.json").decode()
    lines = [line for line in text.splitlines() if not line.strip().startswith("//")]
    schema = json.loads("\n".join(lines))
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    assert schema["validVersions"] == "0"
    _compare(VALUES[name], schema["fields"], common)


def _compare(declared: type[Struct], fields: list[dict[str, object]], common: dict[str, object]) -> None:
    assert len(declared.FIELDS) == len(fields)
    for ours, theirs in zip(declared.FIELDS, fields, strict=True):
        assert ours.name == "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in str(theirs["name"])
        ).lstrip("_")
        assert ours.tag == theirs.get("tag")
        kind = ours.type.element if isinstance(ours.type, ArrayType) else ours.type
        assert isinstance(ours.type, ArrayType) == str(theirs["type"]).startswith("[]")
        if isinstance(kind, StructType):
            inner = theirs.get("fields") or common[str(theirs["type"]).removeprefix("[]")]
            assert isinstance(inner, list)
            _compare(kind.cls, inner, common)
        else:
            assert kind.name == str(theirs["type"]).removeprefix("[]")
