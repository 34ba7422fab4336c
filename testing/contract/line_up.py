"""Which clients can be held against a cluster here, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

from splashdam.testing.contract.external import ExternalClient
from splashdam.testing.contract.toolchains import Driver, MissingToolError, all_drivers
from splashdam.testing.contract.vocabulary import Client

_CLIENTS = "splashdam.testing.contract.clients"

PYTHON_CLIENTS: Mapping[str, tuple[str, str]] = {
    "splashdam": ("splashdam_client", "SplashdamClient"),
    "kafka-python": ("kafka_python", "KafkaPythonClient"),
    "confluent-kafka": ("confluent", "ConfluentClient"),
    "aiokafka": ("aiokafka_client", "AiokafkaClient"),
    "protocol": ("protocol", "ProtocolClient"),
}
"""Those that run in this process, where they are installed: module and class."""

EMBEDDED_CONFIG: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
}
"""What an embedded broker under contract is set to; the real ones beside it are set to the same."""

MakeClient = Callable[[str], Client]
"""Makes a client for the cluster at an address."""


def available(
    names: Sequence[str], jars: Sequence[Path], missing: Callable[[str, str], None]
) -> dict[str, MakeClient]:
    """What makes each of these clients; drivers of other languages are fetched and built where needed.

    Args:
        names: as in `PYTHON_CLIENTS` and `toolchains.all_drivers`.
        jars: folders with Kafka's jars, for its own clients.
        missing: hears a client's name and why it is not to be had.
    """
    drivers = all_drivers(jars)
    found: dict[str, MakeClient] = {}
    for name in names:
        try:
            if name in PYTHON_CLIENTS:
                module, cls = PYTHON_CLIENTS[name]
                found[name] = getattr(import_module(f"{_CLIENTS}.{module}"), cls)
            else:
                found[name] = partial(_external, drivers[name]())
        except ImportError as error:
            missing(name, f"{error.name} is not installed")
        except MissingToolError as error:
            missing(name, str(error))
    return found


def _external(driver: Driver, bootstrap_servers: str) -> Client:
    return ExternalClient(driver.command, bootstrap_servers, driver.directory)


@contextmanager
def lined_up(makers: Mapping[str, MakeClient], bootstrap_servers: str) -> Iterator[list[Client]]:
    """The clients, for as long as the block lasts."""
    with ExitStack() as stack:
        yield [stack.enter_context(make(bootstrap_servers)) for make in makers.values()]
