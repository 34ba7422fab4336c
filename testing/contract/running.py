"""Runs behaviours through clients against one cluster.

Where clients differ from each other by themselves, whatever the cluster: known, looked into, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from time import monotonic
from typing import NamedTuple

from splashdam.model.errors import KafkaError
from splashdam.testing.contract.behaviour import Behaviour, BrokenPromise, Run
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Client, Refused

DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("a_compacted_topic_wants_keys", "aiokafka"): (
        "aiokafka does not know error code 87 and calls it UNKNOWN_SERVER_ERROR"
    ),
    ("offsets_are_kept_with_their_metadata", "confluent-kafka"): (
        "confluent-kafka commits the metadata of a TopicPartition with a zero byte behind it"
    ),
    ("offsets_are_kept_with_their_metadata", "kafkajs"): "kafkajs's setOffsets commits no metadata",
}
"""By a behaviour's and a client's name."""


class Verdict(StrEnum):
    """How a behaviour fared through one client."""

    HOLDS = "holds"
    DIFFERS = "differs"
    BROKEN = "broken"
    LEFT_OUT = "left out"


class Result(NamedTuple):
    """One behaviour through one client.

    Attributes:
        behaviour: which.
        client: the client's name and version.
        verdict: how it fared.
        why: what was found, or what is known of this client, or which operation it lacks; empty where it
            holds.
        seconds: how long it took.
    """

    behaviour: Behaviour
    client: str
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0


def hold(behaviour: Behaviour, client: Client, helper: Client, bootstrap_servers: str) -> Result:
    """Looks at one behaviour through one client; topics and groups it needed are gone afterwards."""
    title = f"{client.name} {client.version}"
    missing = sorted(behaviour.needs - client.ops)
    if missing:
        return Result(behaviour, title, Verdict.LEFT_OUT, f"the client cannot {', '.join(missing)}")
    run = Run(client, helper, bootstrap_servers)
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
    known = DIFFERENCES.get((behaviour.name, client.name))
    if verdict is Verdict.BROKEN and known is not None:
        verdict, why = Verdict.DIFFERS, known
    return Result(behaviour, title, verdict, why, monotonic() - begun)


def meet(behaviour: Behaviour, client: Client) -> bool:
    """Whether they are for each other: what speaks the protocol itself needs no client, and the other way."""
    return (PROTOCOL in behaviour.needs) == (PROTOCOL in client.ops)


def hold_all(
    behaviours: Iterable[Behaviour],
    clients: Sequence[Client],
    helper: Client,
    bootstrap_servers: str,
    tell: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Every behaviour through every client, one after the other.

    Args:
        behaviours: which.
        clients: through which.
        helper: creates and deletes what they need.
        bootstrap_servers: of the cluster.
        tell: hears each result.
    """
    results = []
    for behaviour in behaviours:
        for client in clients:
            if not meet(behaviour, client):
                continue
            results.append(hold(behaviour, client, helper, bootstrap_servers))
            tell(results[-1])
    return results
