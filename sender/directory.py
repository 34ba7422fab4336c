"""All links of a producer: to the brokers of the cluster, and to the addresses where it was looked for
first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import trio

from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import AuthenticationError, WrongListenerError
from splashdam.sender.links import BrokerLink, LinkState


class LinkDirectory:
    """Links by node id; bootstrap addresses have the ids -1, -2, ….

    Args:
        bootstrap: addresses to begin with, and to return to when no broker of the cluster answers.
        make_link: makes the link to a node.
        max_idle_ms: a connection without traffic is closed after this time.
        returns_to_bootstrap: whether those addresses are tried again once brokers are known (KIP-899).
    """

    def __init__(
        self,
        bootstrap: tuple[tuple[str, int], ...],
        make_link: Callable[[Node], BrokerLink],
        max_idle_ms: float,
        *,
        returns_to_bootstrap: bool,
    ) -> None:
        self._returns_to_bootstrap = returns_to_bootstrap
        self._max_idle_ms = max_idle_ms
        self._nothing_idle_before_ms = -math.inf
        self._make_link = make_link
        self._bootstrap = [Node(-number, host, port) for number, (host, port) in enumerate(bootstrap, 1)]
        self._links: dict[int, BrokerLink] = {}

    def __iter__(self) -> Iterator[BrokerLink]:
        return iter(self._links.values())

    def link_to(self, node: Node) -> BrokerLink:
        """The link to a node, made on first use; a link to an address the node has left is closed."""
        link = self._links.get(node.node_id)
        if link is not None and (link.node.host, link.node.port) != (node.host, node.port):
            link.close()
            link = None
        if link is None:
            link = self._links[node.node_id] = self._make_link(node)
        return link

    def update(self, cluster: ClusterMetadata) -> None:
        """Follows the cluster: links to brokers that left are closed once nothing is on its way there.

        The connection through which the cluster was found serves on as that of the broker with this address.
        """
        for node_id, link in list(self._links.items()):
            if node_id >= 0 and node_id not in cluster.nodes and not link.busy:
                self._links.pop(node_id).close()
        for node in cluster.nodes.values():
            if node.node_id not in self._links:
                self._adopt(node)

    def _adopt(self, node: Node) -> None:
        for node_id, link in self._links.items():
            if node_id < 0 and (link.node.host, link.node.port) == (node.host, node.port):
                link.node = node
                self._links[node.node_id] = self._links.pop(node_id)
                return

    def forget_brokers(self) -> None:
        """Closes the links to brokers of the cluster; it is looked for at the bootstrap addresses again."""
        for node_id in [node_id for node_id in self._links if node_id >= 0]:
            self._links.pop(node_id).close()

    def any_sendable(self) -> BrokerLink | None:
        """The least loaded link that can send at once."""
        return min((link for link in self if link.sendable), key=lambda link: link.in_flight, default=None)

    def want_any(self, cluster: ClusterMetadata, nursery: trio.Nursery, now_ms: float) -> float:
        """Sees to it that some broker becomes reachable.

        Returns:
            how long until another attempt makes sense, or a throttled link can send again; infinity while a
            link is merely busy, or every one is being made.
        """
        promising_ms = max((link.promising_ms(now_ms) for link in self), default=0.0)
        if promising_ms:
            return promising_ms
        links = [self.link_to(node) for node in self._candidates(cluster)]
        candidates = [link for link in links if link.state is LinkState.IDLE]
        ready = (link for link in links if link.state is LinkState.READY)
        sendable_in_ms = min((link.delay_ms(now_ms) for link in ready), default=math.inf)
        if not candidates:
            return sendable_in_ms
        best = min(candidates, key=lambda link: (link.delay_ms(now_ms), link.failures))
        best.want(nursery, now_ms)
        return min(best.delay_ms(now_ms), sendable_in_ms)

    def _candidates(self, cluster: ClusterMetadata) -> list[Node]:
        """The brokers of the cluster, and the addresses to begin with that are not theirs."""
        addresses = {(node.host, node.port) for node in cluster.nodes.values()}
        elsewhere = [node for node in self._bootstrap if (node.host, node.port) not in addresses]
        if addresses and not self._returns_to_bootstrap:
            elsewhere = []
        return [*cluster.nodes.values(), *elsewhere]

    def refusal(self, cluster: ClusterMetadata) -> AuthenticationError | None:
        """Why nobody lets us in, once every broker was tried in vain and one of them did not trust us.

        What is wrong with one listener says nothing of another one, which may be away for a moment.
        """
        links = [self._links.get(node.node_id) for node in self._candidates(cluster)]
        if any(link is None or link.hopeful or link.last_error is None for link in links):
            return None
        errors = [link.last_error for link in links if link is not None]
        refusals = [error for error in errors if isinstance(error, AuthenticationError)]
        of_the_cluster = [error for error in refusals if not isinstance(error, WrongListenerError)]
        if of_the_cluster or len(refusals) < len(errors):
            return next(iter(of_the_cluster), None)
        return next(iter(refusals), None)

    def obstacle(self) -> str:
        """Which brokers throttle us and for how long, in words; empty if none does. Any thread may ask."""
        throttled = [(link.node, link.throttled_ms) for link in list(self._links.values())]
        return "; ".join(
            f"the broker at {node.host}:{node.port} asked to be left alone"
            f" for another {left_ms / 1000:,.1f} s (throttled)"
            for node, left_ms in throttled
            if left_ms > 0
        )

    def silent(self) -> str:
        """Which brokers are being connected to, or have not said what they speak. Any thread may ask."""
        links = list(self._links.values())
        return ", ".join(str(link.node) for link in links if link.state is LinkState.CONNECTING)

    def close_idle(self, now_ms: float) -> float:
        """Closes connections that nobody used for long.

        Returns:
            how long until the next one counts as idle.
        """
        if now_ms < self._nothing_idle_before_ms:
            return self._nothing_idle_before_ms - now_ms if self._links else math.inf
        next_ms = self._max_idle_ms  # whoever is in use now, or connects later
        for link in self:
            idle_in_ms = link.idle_in_ms(now_ms)
            if idle_in_ms <= 0:
                link.close()
            else:
                next_ms = min(next_ms, idle_in_ms)
        self._nothing_idle_before_ms = now_ms + next_ms
        return next_ms if self._links else math.inf
