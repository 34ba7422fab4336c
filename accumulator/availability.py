"""Which nodes have not taken anything for a while, though there was something for them (KIP-794)."""

from __future__ import annotations


class NodeAvailability:
    """Nodes that lag: their connection could not take a request for longer than the limit.

    Args:
        timeout_ms: the limit (Kafka: ``partitioner.availability.timeout.ms``); 0 switches this off.
    """

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._ready_ms: dict[int, float] = {}
        self._drained_ms: dict[int, float] = {}

    def note(self, node_id: int, now_ms: float, *, writable: bool) -> None:
        """There is something to send to this node, and its connection takes it now, or does not."""
        self._ready_ms[node_id] = now_ms
        if writable or node_id not in self._drained_ms:
            self._drained_ms[node_id] = now_ms

    def lags(self, node_id: int) -> bool:
        """Whether null keys should rather go elsewhere."""
        if not self.timeout_ms:
            return False
        drained_ms = self._drained_ms.get(node_id, 0.0)
        return self._ready_ms.get(node_id, drained_ms) - drained_ms > self.timeout_ms
