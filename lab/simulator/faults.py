"""Carries out the faults of a scenario in their order, and mends everything at the end."""

from __future__ import annotations

import errno
from collections.abc import Callable

import trio

from lab.simulator.cluster import PORT, BrokerNode, SimulatedCluster
from lab.simulator.network import SimulatedNetwork
from lab.simulator.report import RunRecord
from lab.simulator.scenario import PlannedFault, Scenario
from splashdam.storage.files.memory import Fault

_Act = Callable[[BrokerNode, PlannedFault], None]


class FaultMaker:
    """Makes the faults of one run.

    Args:
        scenario: has the faults.
        cluster: has the brokers.
        network: has the connections.
        record: for the trace and the counts.
    """

    def __init__(
        self, scenario: Scenario, cluster: SimulatedCluster, network: SimulatedNetwork, record: RunRecord
    ) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._network = network
        self._record = record
        self._acts: dict[str, _Act] = {
            "cut both": lambda node, _: network.cut(node.host, "both"),
            "cut client": lambda node, fault: network.cut(node.host, "client", fault.for_ms / 1000),
            "cut broker": lambda node, _: network.cut(node.host, "broker"),
            "half alive": self._stall,
            "stall": self._stall,
            "lose": self._lose,
            "slow": self._slow,
            "doom": self._doom,
            "refuse": self._refuse,
            "move": self._move,
            "stop": lambda node, _: cluster.end(node, "stop"),
            "kill": lambda node, _: cluster.end(node, "kill"),
            "power cut": lambda node, _: cluster.end(node, "power cut"),
            "disk error": self._disk_error,
            "disk full": self._disk_full,
        }
        self._ends: dict[str, Callable[[BrokerNode], None]] = {
            "half alive": self._leave_half_alive,
            "lose": lambda node: self._set(node, stalled_until=0.0),
            "slow": lambda node: self._set(node, slowest_ms=network.distance_ms),
            "doom": lambda node: self._set(node, cut_after_bytes=0),
            "refuse": lambda node: network.refuse(node.host, PORT, refusing=False),
            "stop": cluster.start,
            "kill": cluster.start,
            "power cut": cluster.start,
            "disk error": self._heal,
            "disk full": self._heal,
        }

    async def run(self) -> None:
        """Make each fault at its time; return when everything works again."""
        start = trio.current_time()
        with trio.move_on_at(start + self._scenario.horizon_ms / 1000):
            async with trio.open_nursery() as nursery:
                for fault in self._scenario.faults:
                    await trio.sleep_until(start + fault.at_ms / 1000)
                    nursery.start_soon(self._make, fault)
                await trio.sleep_forever()
        self._network.clear_up()
        for node in self._cluster.nodes.values():
            self._network.refuse(node.host, PORT, refusing=False)
        await self._cluster.recover()
        self._record.note("calm")

    async def _make(self, fault: PlannedFault) -> None:
        node = self._cluster.nodes[fault.node_id]
        self._record.note("fault", f"{fault.kind} {node.host} {fault.for_ms:.3f} ms")
        self._record.count(f"fault: {fault.kind}")
        self._acts[fault.kind](node, fault)
        if fault.kind in self._ends:
            await trio.sleep(fault.for_ms / 1000)
            self._ends[fault.kind](node)

    # --- the network ----------------------------------------------------------------------------------------

    def _set(self, node: BrokerNode, **values: float) -> None:
        weather = self._network.weather(node.host)
        for name, value in values.items():
            setattr(weather, name, value)

    def _stall(self, node: BrokerNode, fault: PlannedFault) -> None:
        self._set(node, stalled_until=trio.current_time() + fault.for_ms / 1000)

    def _leave_half_alive(self, node: BrokerNode) -> None:
        """Cut the client's end; its last bytes arrive later, during its next connection."""
        self._network.cut(node.host, "client", 0.001 * (self._record.counts["connections"] % 7) ** 4)

    def _lose(self, node: BrokerNode, _fault: PlannedFault) -> None:
        self._set(node, stalled_until=float("inf"))

    def _slow(self, node: BrokerNode, fault: PlannedFault) -> None:
        self._set(node, slowest_ms=20 + fault.number % 400)

    def _doom(self, node: BrokerNode, fault: PlannedFault) -> None:
        self._set(node, cut_after_bytes=500 + fault.number % 8_000)
        self._network.cut(node.host, "both")

    def _refuse(self, node: BrokerNode, _fault: PlannedFault) -> None:
        self._network.refuse(node.host, PORT)
        self._network.cut(node.host, "both")

    # --- brokers and disks ----------------------------------------------------------------------------------

    def _move(self, node: BrokerNode, fault: PlannedFault) -> None:
        partitions = self._cluster.partitions
        self._cluster.move(partitions[fault.number % len(partitions)], node.node_id)

    def _disk_error(self, node: BrokerNode, fault: PlannedFault) -> None:
        if node.broker is None:
            return
        number = errno.EIO if fault.number % 2 else errno.ENOSPC
        landed = fault.number % 90 if fault.number % 3 else 0
        node.files.inject(
            Fault(number, after=fault.number % 5, times=1 + fault.number % 4, landed_bytes=landed)
        )

    def _disk_full(self, node: BrokerNode, fault: PlannedFault) -> None:
        node.files.capacity_bytes = node.files.used_bytes + fault.number % 3_000

    def _heal(self, node: BrokerNode) -> None:
        node.files.capacity_bytes = None
        if node.broker is None:
            return  # another fault has ended it
        node.files.heal()
        if self._cluster.has_failed_log(node):
            self._cluster.end(node, "kill")
            self._cluster.start(node)
