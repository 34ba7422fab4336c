"""Topics, their partitions and their configurations."""

from __future__ import annotations

from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import values
from splashdam.testing.contract.vocabulary import Record


@behaviour("create_topic", "describe_topic")
def a_topic_has_the_partitions_it_was_created_with(run: Run) -> None:
    """Numbered from 0, each with a leader that is in sync."""
    topic = run.new_topic()
    run.client.create_topic(topic, 3)
    run.eventually(lambda: expect(len(run.client.describe_topic(topic)), 3, "partitions"))
    found = run.client.describe_topic(topic)
    expect([each.partition for each in found], [0, 1, 2], "partitions")
    expect([each.leader in each.isr for each in found], [True] * 3, "leaders in sync")
    expect([each.isr == each.replicas for each in found], [True] * 3, "replicas in sync")


@behaviour("create_topic")
def a_topic_is_created_once(run: Run) -> None:
    """The second time it is TOPIC_ALREADY_EXISTS."""
    topic = run.topic()
    with run.refused("TOPIC_ALREADY_EXISTS"):
        run.client.create_topic(topic)


@behaviour("create_topic")
def a_topic_needs_a_legal_name(run: Run) -> None:
    """Letters, digits, dot, underscore and hyphen; other characters are INVALID_TOPIC_EXCEPTION."""
    with run.refused("INVALID_TOPIC_EXCEPTION"):
        run.client.create_topic(f"{run.name()} with blanks")


@behaviour("create_topic")
def a_topic_needs_partitions(run: Run) -> None:
    """Zero partitions are INVALID_PARTITIONS."""
    with run.refused("INVALID_PARTITIONS"):
        run.client.create_topic(run.new_topic(), 0)


@behaviour("create_topic")
def a_replica_needs_a_broker(run: Run) -> None:
    """More replicas than brokers are INVALID_REPLICATION_FACTOR."""
    with run.refused("INVALID_REPLICATION_FACTOR"):
        run.client.create_topic(run.new_topic(), replication_factor=100)


@behaviour("create_topic")
def configurations_are_checked(run: Run) -> None:
    """A bad value and an unknown name are INVALID_CONFIG, and no topic is created."""
    topic = run.new_topic()
    with run.refused("INVALID_CONFIG"):
        run.client.create_topic(topic, configs={"retention.ms": "soon"})
    with run.refused("INVALID_CONFIG"):
        run.client.create_topic(topic, configs={"retention.jiffies": "1"})
    expect(topic in run.helper.call("list_topics"), False, "created all the same")


@behaviour("create_topic")
def a_topic_that_is_only_validated_is_not_created(run: Run) -> None:
    """validate_only answers as usual and changes nothing."""
    topic = run.new_topic()
    run.client.create_topic(topic, validate_only=True)
    expect(topic in run.helper.call("list_topics"), False, "created all the same")


@behaviour("delete_topic", "list_topics")
def a_deleted_topic_is_gone(run: Run) -> None:
    """It is not listed any more; the second time it is UNKNOWN_TOPIC_OR_PARTITION."""
    topic = run.topic()
    run.eventually(lambda: expect(topic in run.client.call("list_topics"), True, "listed before"))
    run.client.call("delete_topic", topic=topic)
    run.eventually(lambda: expect(topic in run.helper.call("list_topics"), False, "listed after"))
    with run.refused("UNKNOWN_TOPIC_OR_PARTITION"):
        run.client.call("delete_topic", topic=topic)


@behaviour("describe_topic")
def describing_a_missing_topic_is_an_error(run: Run) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION, if the client asks without creating it."""
    topic = run.new_topic()
    with run.without_creation(topic), run.refused("UNKNOWN_TOPIC_OR_PARTITION"):
        run.client.describe_topic(topic)


@behaviour("create_partitions", "describe_topic")
def a_topic_can_grow(run: Run) -> None:
    """New partitions take records at once."""
    topic = run.topic()
    run.client.call("create_partitions", topic=topic, count=3)
    run.eventually(lambda: expect(len(run.client.describe_topic(topic)), 3, "partitions"))
    (outcome,) = run.helper.produce(topic, [Record(b"v", partition=2)])
    expect((outcome.partition, outcome.offset), (2, 0), "record in the new partition")


@behaviour("create_partitions")
def a_topic_cannot_shrink(run: Run) -> None:
    """As many partitions as before, or fewer, are INVALID_PARTITIONS."""
    topic = run.topic(partitions=2)
    for count in (1, 2):
        with run.refused("INVALID_PARTITIONS"):
            run.client.call("create_partitions", topic=topic, count=count)


@behaviour("describe_configs")
def configurations_are_shown(run: Run) -> None:
    """Values that were set, and defaults for the others."""
    topic = run.topic(retention_ms="123456")
    found = run.client.call("describe_configs", kind="topic", name=topic)
    shown = {name: found.get(name) for name in ("retention.ms", "cleanup.policy", "max.message.bytes")}
    wanted = {"retention.ms": "123456", "cleanup.policy": "delete", "max.message.bytes": "1048588"}
    expect(shown, wanted, "configurations")


@behaviour("alter_configs", "describe_configs")
def configurations_take_effect(run: Run) -> None:
    """A new limit applies to the next record, and deleting it restores the default."""
    topic = run.topic()
    run.client.call("alter_configs", kind="topic", name=topic, set={"max.message.bytes": "500"}, delete=[])
    large = [Record(b"x" * 2000)]
    run.eventually(lambda: expect(run.helper.produce(topic, large)[0].error, "MESSAGE_TOO_LARGE", "outcome"))
    run.client.call("alter_configs", kind="topic", name=topic, set={}, delete=["max.message.bytes"])
    run.eventually(lambda: expect(run.helper.produce(topic, large)[0].error, None, "with the default"))


@behaviour("alter_configs")
def altered_configurations_are_checked(run: Run) -> None:
    """A bad value is INVALID_CONFIG and changes nothing."""
    topic = run.topic()
    with run.refused("INVALID_CONFIG"):
        run.client.call("alter_configs", kind="topic", name=topic, set={"segment.bytes": "-5"}, delete=[])


@behaviour("delete_records")
def records_are_deleted_up_to_an_offset(run: Run) -> None:
    """The log start offset moves there; beyond the high watermark it is OFFSET_OUT_OF_RANGE."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c"))
    run.client.call("delete_records", topic=topic, partition=0, before_offset=2)
    expect(run.helper.offsets(topic, "earliest"), 2, "log start offset")
    with run.refused("OFFSET_OUT_OF_RANGE"):
        run.client.call("delete_records", topic=topic, partition=0, before_offset=99)


@behaviour("describe_cluster")
def the_cluster_describes_itself(run: Run) -> None:
    """Every client gets the same cluster id, and the controller is one of the brokers."""
    found = run.client.call("describe_cluster")
    expect(found["cluster_id"], run.helper.call("describe_cluster")["cluster_id"], "cluster id")
    expect(
        found["controller"] in found["brokers"],
        True,
        f"controller {found['controller']} in {found['brokers']}",
    )
