"""A client that runs in this process: its operations are methods."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, Client, Refused

_PREFIX = "do_"

CLIENT_ID = "contract"
API_TIMEOUT_MS = 20_000
"""For how long a client tries."""


class InProcessClient(Client):
    """Answers an operation with its method ``do_<operation>``, which takes and gives what goes over a pipe.

    Args:
        bootstrap_servers: of the cluster.

    Attributes:
        logger: the name of the client's.
    """

    logger = "splashdam"

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        logging.getLogger(self.logger).addHandler(logging.NullHandler())  # what goes wrong is in the answers
        self.ops = frozenset(name.removeprefix(_PREFIX) for name in dir(self) if name.startswith(_PREFIX))

    def call(self, op: str, /, **args: Any) -> Any:
        do = getattr(self, _PREFIX + op, None)
        if do is None:
            raise Refused(NOT_IN_CLIENT, op)
        with self.refusals():
            return do(**args)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turns the client's exceptions into `Refused`."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:  # whatever it is, it is what this client made of the answer
            raise Refused(self.name_of(error), str(error)) from error

    def name_of(self, error: BaseException) -> str:
        """What Kafka calls an error; the class where it does not come from a broker."""
        return type(error).__name__


def name_of_code(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"
