"""What a cluster is opened with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.embedded_broker.settings import BrokerSettings
from splashdam.embedded_broker.storage.files import Files
from splashdam.net.clock import Clock
from splashdam.net.listen import Listen

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authority import TokenValidator


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(path)


@attrs.frozen(kw_only=True)
class ClusterOptions:
    """What a cluster is opened with; as `open_cluster` has it."""

    path: str = attrs.field(converter=_absolute)
    brokers: int
    host: str
    port: int | None
    listen: Listen
    clock: Clock
    files: Files
    token_validator: TokenValidator | None
    options: Mapping[str, Any]
    config: Mapping[str, Any]

    def settings(self, node_id: int) -> BrokerSettings:
        """Those of one broker.

        Raises:
            KafkaConfigurationError: one is unknown or illegal.
        """
        options = {**self.options, "node_id": node_id}
        if not {"default_replication_factor", "default.replication.factor"} & {*options, *self.config}:
            options["default_replication_factor"] = min(3, self.brokers)
        return BrokerSettings.from_options(options, self.config)
