"""Page 1: brokers, topics, clients, what differs from the defaults; and one topic with its partitions."""

from __future__ import annotations

from splashdam.console.routes import Page, Route, Visit
from splashdam.console.sampling import Seen
from splashdam.model.views.cluster import ClientView, TopicView
from splashdam.net.http import HttpAnswer

_SHOWN = 200
"""A page holds no more topics or partitions than this, and says how many there are."""


async def overview(visit: Visit) -> HttpAnswer:
    """Show the cluster."""
    seen = await visit.parts.sampler.look()
    # The first picture is there at once; what groups read comes with the next one.
    groups = await visit.parts.sampler.look_at_groups(asks=visit.is_live)
    wanted = visit.query.get("q", "").strip()
    shows_internal = "internal" in visit.query
    clients = _clients(seen)
    found = _topics(seen, wanted, shows_internal=shows_internal)
    return await visit.show(
        "overview.html",
        seen=seen,
        groups=groups,
        overview=seen.overview,
        topics=found[:_SHOWN],
        found=len(found),
        hidden=0
        if shows_internal or seen.overview is None
        else sum(t.is_internal for t in seen.overview.topics),
        wanted=wanted,
        shows_internal=shows_internal,
        clients=clients,
        failing_clients=sum(client.last_error is not None for client in clients or ()),
    )


def _topics(seen: Seen, wanted: str, *, shows_internal: bool) -> list[TopicView]:
    if seen.overview is None:
        return []
    return [
        topic
        for topic in seen.overview.topics
        if wanted.lower() in topic.name.lower() and (shows_internal or not topic.is_internal)
    ]


def _clients(seen: Seen) -> list[ClientView] | None:
    """Return the clients, those with the most errors first: by the time of the last they would jump."""
    if seen.overview is None or seen.overview.clients is None:
        return None
    return sorted(seen.overview.clients, key=lambda each: (-each.errors, each.number))


async def topic(visit: Visit) -> HttpAnswer:
    """Show one topic with its partitions."""
    seen = await visit.parts.sampler.look()
    name = visit.arguments["topic"]
    found = [each for each in seen.overview.topics if each.name == name] if seen.overview else []
    if not found and seen.overview is not None:
        return await visit.missing(f"no topic {name}")
    partitions = found[0].partitions if found else ()
    return await visit.show(
        "topic.html",
        seen=seen,
        name=name,
        topic=found[0] if found else None,
        partitions=partitions[:_SHOWN],
        count_of_partitions=len(partitions),
    )


PAGE = Page(
    name="Overview",
    order=1,
    key="o",
    routes=(Route("GET", "/", overview), Route("GET", "/topics/{topic}", topic)),
)
