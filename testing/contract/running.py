"""Run behaviours through clients against a cluster, and judge the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from time import monotonic
from typing import NamedTuple

from splashdam.model.errors import KafkaError
from splashdam.testing.contract.behaviour import Behaviour, BrokenPromise, Run
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Client, Listener, Refused

_KAFKA_PYTHON_LOGS = "kafka-python tries again until its time is up; the reason is only in its log"
_AIOKAFKA_LOGS = "aiokafka says that it cannot bootstrap; the reason is only in its log"

DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("a_compacted_topic_requires_keys", "aiokafka"): (
        "aiokafka does not know error code 87 and calls it UNKNOWN_SERVER_ERROR"
    ),
    ("offsets_are_kept_with_their_metadata", "confluent-kafka"): (
        "confluent-kafka commits the metadata of a TopicPartition with a zero byte behind it"
    ),
    ("offsets_are_kept_with_their_metadata", "kafkajs"): "kafkajs's setOffsets commits no metadata",
    ("a_certificate_is_named_as_the_reason", "kafka-python"): _KAFKA_PYTHON_LOGS,
    ("a_wrong_password_is_named_as_the_reason", "kafka-python"): _KAFKA_PYTHON_LOGS,
    ("a_certificate_is_named_as_the_reason", "aiokafka"): _AIOKAFKA_LOGS,
    ("a_wrong_password_is_named_as_the_reason", "aiokafka"): _AIOKAFKA_LOGS,
}
"""Known differences that are the client's, whatever the cluster: by behaviour and client."""


class Verdict(StrEnum):
    """The result of a behaviour through a client."""

    HOLDS = "holds"
    DIFFERS = "differs"
    BROKEN = "broken"
    LEFT_OUT = "left out"


class Result(NamedTuple):
    """The result of a behaviour through a client.

    Attributes:
        behaviour: the behaviour.
        client: name and version of the client.
        verdict: whether it holds.
        why: the found value, the known difference, or the missing operation; empty if it holds.
        seconds: its duration.
    """

    behaviour: Behaviour
    client: str
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0


def hold(
    behaviour: Behaviour,
    client: Client,
    helper: Client,
    bootstrap_servers: str,
    *,
    listeners: Sequence[Listener] = (),
) -> Result:
    """Check one behaviour through one client; delete its topics and groups.

    The arguments are those of `hold_all`.
    """
    title = f"{client.name} {client.version}"
    missing = sorted(behaviour.needs - client.ops)
    if missing:
        return Result(behaviour, title, Verdict.LEFT_OUT, f"the client cannot {', '.join(missing)}")
    run = Run(client, helper, bootstrap_servers, listeners)
    begun = monotonic()
    verdict, why = Verdict.HOLDS, ""
    try:
        behaviour.check(run)
    except Refused as error:
        cannot = error.name == NOT_IN_CLIENT
        verdict, why = (Verdict.LEFT_OUT, error.text) if cannot else (Verdict.BROKEN, str(error))
    except (BrokenPromise, KafkaError, OSError) as error:
        verdict, why = Verdict.BROKEN, str(error)
    finally:
        run.clean_up()
    # Only a failure is excused: a client that has mended its difference is reported as it is.
    known = DIFFERENCES.get((behaviour.name, client.name))
    if verdict is Verdict.BROKEN and known is not None:
        verdict, why = Verdict.DIFFERS, known
    return Result(behaviour, title, verdict, why, monotonic() - begun)


def meet(behaviour: Behaviour, client: Client) -> bool:
    """Return whether the behaviour runs through this client: `ProtocolClient` takes those that need none."""
    return (PROTOCOL in behaviour.needs) == (PROTOCOL in client.ops)


def hold_all(
    behaviours: Iterable[Behaviour],
    clients: Sequence[Client],
    helper: Client,
    bootstrap_servers: str,
    tell: Callable[[Result], None] = lambda _: None,
    *,
    listeners: Sequence[Listener] = (),
) -> list[Result]:
    """Check every behaviour through every client, one after the other.

    Args:
        behaviours: the behaviours.
        clients: the clients.
        helper: the client that creates, checks and deletes.
        bootstrap_servers: addresses of the cluster.
        tell: called with each result.
        listeners: see `Run`.
    """
    results = []
    for behaviour in behaviours:
        for client in clients:
            if not meet(behaviour, client):
                continue
            results.append(hold(behaviour, client, helper, bootstrap_servers, listeners=listeners))
            tell(results[-1])
    return results
