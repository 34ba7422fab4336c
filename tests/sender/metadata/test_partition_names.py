"""The error of a record names its partition once, whatever the broker's text says and what came before."""

from __future__ import annotations

from support.scripted.cluster import Trouble

from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.values import TopicPartition


async def test_a_text_of_kafka_that_names_the_partition_is_not_named_again(make_rig, autojump_clock):
    """Kafka's texts for single records end with ``in topic partition t-0.``."""
    rig = make_rig(linger_ms=5)
    text = "Compacted topic cannot accept message without key in topic partition t-0."
    rig.cluster.produce_script.append(Trouble(code=87, record_errors={1: text}))
    async with rig.running():
        futures = [rig.send(b"%d" % number) for number in range(2)]
        innocent, culprit = [str(await rig.outcome(future)) for future in futures]
        assert innocent.count("t-0") == culprit.count("t-0") == 1
        assert text.rstrip(".") in culprit


async def test_a_batch_behind_one_that_failed_names_the_partition_once(make_rig, autojump_clock):
    """It once said ``t-0: this batch was sent behind one that failed: t-0: …``."""
    rig = make_rig(batch_bytes=0, retries=1)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([Trouble(code=code) for code in (56, 45, 45, 56, 45)])
        futures = [rig.send(b"%d" % number) for number in range(3)]
        _, behind, _ = [str(await rig.outcome(future)) for future in futures]
        assert "behind one that failed" in behind
        assert behind.count("t-0") == 1


async def test_a_timeout_names_the_partition_once(make_rig, autojump_clock):
    """Its last failure, which may be that of another batch, names one, too."""
    rig = make_rig(delivery_timeout_ms=1_000, request_timeout_ms=900)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([Trouble(code=19)] * 100)
        error = await rig.send_and_wait(b"late")
        assert isinstance(error, KafkaTimeoutError)
        assert "last failure: [19" in str(error)
        assert str(error).count("t-0") == 1


async def test_a_timeout_without_a_failure_names_the_partition(make_rig, autojump_clock):
    """Nothing was sent since nobody led it, so no other text has the name."""
    rig = make_rig(delivery_timeout_ms=1_000, request_timeout_ms=900)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.leaders[TopicPartition("t", 0)] = (-1, -1)
        rig.metadata.request_update()
        error = await rig.send_and_wait(b"late")
        assert isinstance(error, KafkaTimeoutError)
        assert str(error).count("t-0") == 1
