"""The protocol itself, in the line-up of clients: behaviours that speak it are held through nothing else."""

from __future__ import annotations

from importlib.metadata import version

from splashdam.testing.contract.vocabulary import SPEAK, Client


class ProtocolClient(Client):
    """Has no operation but to speak, which `splashdam.testing.contract.conversation` does.

    Args:
        bootstrap_servers: of the cluster.
    """

    name = "protocol"
    version = version("splashdam")
    ops = frozenset({SPEAK})

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
