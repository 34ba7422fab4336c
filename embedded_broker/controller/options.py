"""What a cluster is opened with, checked before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.security import PORTS, check_port
from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.clock import Clock
from splashdam.net.listen import Listen
from splashdam.storage.files.disk import Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authority import TokenValidator


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(path)


@attrs.frozen(kw_only=True)
class ClusterOptions:
    """What a cluster is opened with; as `open_cluster` has it.

    Raises:
        KafkaConfigurationError: there cannot be so many brokers, or not at such ports, or a node id is given,
            or there are more or fewer racks than brokers.
    """

    path: str = attrs.field(converter=_absolute)
    brokers: int
    racks: Sequence[str | None] = ()
    host: str
    port: int | None
    listen: Listen
    clock: Clock
    files: Files
    token_validator: TokenValidator | None
    options: Mapping[str, Any]
    config: Mapping[str, Any]

    def __attrs_post_init__(self) -> None:
        """Refuses numbers that are none, or absurd, and node ids, which count from 1."""
        if type(self.brokers) is not int or self.brokers < 1:
            raise KafkaConfigurationError(f"brokers={self.brokers!r}: it is a whole number, 1 or more")
        check_port(self.port)
        if self.port and self.port > PORTS - self.brokers:
            text = (
                f"port={self.port}: {self.brokers} brokers have ports from there on, all of 1 to {PORTS - 1}"
            )
            raise KafkaConfigurationError(text)
        for name in ("node_id", "node.id", "broker.id"):
            if name in self.options or name in self.config:
                raise KafkaConfigurationError(
                    f"{name} cannot be set for a cluster: the node ids of its brokers are 1 to {self.brokers}"
                )

        self._check_racks()

    def _check_racks(self) -> None:
        if not self.racks:
            return
        if isinstance(self.racks, str) or len(self.racks) != self.brokers:
            raise KafkaConfigurationError(
                f"racks={self.racks!r}: one for each of the {self.brokers} brokers, or none at all"
            )
        if "broker_rack" in self.options or "broker.rack" in self.config:
            raise KafkaConfigurationError("racks says where each broker stands; leave out broker.rack")

    def settings(self, node_id: int) -> BrokerSettings:
        """Those of one broker.

        Raises:
            KafkaConfigurationError: one is unknown or illegal.
        """
        options = {**self.options, "node_id": node_id}
        if self.racks:
            options["broker_rack"] = self.racks[node_id - 1] or ""
        if not {"default_replication_factor", "default.replication.factor"} & {*options, *self.config}:
            options["default_replication_factor"] = min(3, self.brokers)
        return BrokerSettings.from_options(options, self.config)
