"""What a broker is given that is not alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.peers import ConnectToBroker
    from splashdam.embedded_broker.replication.replica_manager import ControlsPartitions


@attrs.frozen
class Membership:
    """A broker's place in a cluster.

    Attributes:
        controller: of the cluster.
        connect: opens a stream to another broker, by node id.
        line: what the broker's replicas ask in the controller's stead, as over a line that can break.
    """

    controller: Controller
    connect: ConnectToBroker
    line: ControlsPartitions | None = None
