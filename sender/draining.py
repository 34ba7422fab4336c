"""Which batches may go now, and over which links: a turn's way into the accumulator."""

from __future__ import annotations

import math

import trio

from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.results import DrainGate, ReadyCheck
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.directory import LinkDirectory
from splashdam.sender.links import BrokerLink

NodeBatches = tuple[BrokerLink, list[ProducerBatch]]
"""What goes to one node in one request."""


class Draining:
    """Takes batches from the accumulator for the nodes that can be sent to; connects to the others.

    All methods are called with the guard held.

    Args:
        context: what all parts share.
        links: the ways to nodes.
        completion: told of batches that are under way from now on.
        gate: which partitions may be drained, as idempotence sees it.
    """

    def __init__(
        self, context: SenderContext, links: LinkDirectory, completion: Completion, gate: DrainGate
    ) -> None:
        self._context = context
        self._links = links
        self._completion = completion
        self._gate = gate

    def ready(self, now_ms: float) -> ReadyCheck:
        """Which nodes have something to be sent; leaders that nobody knows are asked for."""
        metadata = self._context.metadata
        check = self._context.accumulator.ready(metadata.cluster, now_ms, self._gate)
        if check.unknown_leader_topics:
            metadata.request_missing(check.unknown_leader_topics, now_ms)
        return check

    def drain(
        self, check: ReadyCheck, nursery: trio.Nursery, now_ms: float
    ) -> tuple[float, list[NodeBatches]]:
        """Takes what can be written at once.

        Returns:
            how long until time alone makes another node usable, and the batches by node.
        """
        context = self._context
        cluster = context.metadata.cluster
        delay_ms = math.inf
        sendable: dict[int, BrokerLink] = {}
        for node_id in check.nodes:
            link = self._links.link_to(cluster.nodes[node_id])
            writable = link.sendable
            if context.accumulator.availability.timeout_ms:
                context.accumulator.availability.note(node_id, now_ms, writable=writable)
            if writable:
                sendable[node_id] = link
            else:
                link.want(nursery, now_ms)
                delay_ms = min(delay_ms, link.delay_ms(now_ms))
        if not sendable:
            return delay_ms, []
        drained = context.accumulator.drain(
            cluster, sendable, context.settings.max_request_size, now_ms, self._gate
        )
        requests: list[NodeBatches] = []
        for node_id, batches in drained.items():
            self._completion.begin(batches)
            context.metadata.touch([batch.topic_partition.topic for batch in batches], now_ms)
            requests.append((sendable[node_id], batches))
        return delay_ms, requests
