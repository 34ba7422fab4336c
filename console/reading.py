"""What of a topic is searched: partitions, times and offsets become spans of offsets, and a scan of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import attrs

from splashdam.console.criteria import Criteria, CriteriaError, criteria
from splashdam.console.routes import Parts
from splashdam.console.scan import Scan, Span
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import TopicView
from splashdam.net.admin.topics import list_offsets
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchClient, FetchSettings, open_fetch_client

CLIENT_ID = "splashdam-console"
_TIMEOUT_MS = 10_000


@attrs.frozen(kw_only=True)
class Asked:
    """What a visitor asks for.

    Attributes:
        fields: as the form had them.
        wanted: which records.
        partition: None: all.
        since_ms: no record before this time; None: any.
        until_ms: no record at or after this time, likewise.
        from_offset: none before this one, likewise.
        to_offset: none at or after this one, likewise.
        before: where an earlier page has ended, by partition.
    """

    fields: Mapping[str, str]
    wanted: Criteria
    partition: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    before: Mapping[int, int] = attrs.field(factory=dict)

    @property
    def is_filtered(self) -> bool:
        """Whether some records are not wanted."""
        return self.wanted.matches is not None


def asked(query: Mapping[str, str]) -> Asked:
    """Read the fields of the form.

    Raises:
        CriteriaError: one has no meaning; the text says which.
    """
    wanted = criteria(
        query.get("q", ""),
        query.get("in") or "anywhere",
        query.get("how") or "contains",
        query.get("path", "").strip(),
    )
    return Asked(
        fields=query,
        wanted=wanted,
        partition=_number(query, "partition"),
        since_ms=time_of(query.get("since", ""), "since"),
        until_ms=time_of(query.get("until", ""), "until"),
        from_offset=_number(query, "from"),
        to_offset=_number(query, "to"),
        before=_cursor(query.get("before", "")),
    )


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise CriteriaError(f"{name}: {text!r} is no number")
    return int(text)


def time_of(text: str, name: str) -> int | None:
    """Read ``2026-01-31T10:00`` in UTC, or milliseconds since the epoch; None for an empty text.

    Raises:
        CriteriaError: it is neither.
    """
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CriteriaError(f"{name}: {text!r} is no time; one looks like 2026-01-31T10:00, in UTC") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _cursor(text: str) -> dict[int, int]:
    try:
        pairs = [each.split("-") for each in text.split(".") if each]
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise CriteriaError("this page has no such continuation; search again") from None


def cursor_text(positions: Mapping[int, int]) -> str:
    """Return positions as they stand in an address."""
    return ".".join(f"{partition}-{offset}" for partition, offset in sorted(positions.items()))


@asynccontextmanager
async def open_client(parts: Parts, *, max_wait_ms: int = 0) -> AsyncIterator[FetchClient]:
    """Provide connections of its own: a fetch would hold up the pages."""
    settings = FetchSettings(
        client_id=CLIENT_ID,
        timeout_ms=_TIMEOUT_MS,
        request_timeout_ms=_TIMEOUT_MS,
        max_wait_ms=max_wait_ms,
        awaits_first_broker=False,
    )
    source = parts.source
    async with open_fetch_client(
        source.bootstrap,
        connect=source.connect,
        clock=parts.clock,
        settings=settings,
        authenticator=source.authenticator,
    ) as client:
        yield client


async def spans_of(parts: Parts, topic: TopicView, what: Asked) -> dict[int, Span]:
    """Return the offsets to search, by partition; brokers find times by their time indexes.

    Raises:
        KafkaError: the cluster does not answer.
    """
    views = {
        each.topic_partition: each
        for each in topic.partitions
        if each.leader >= 0 and what.partition in (None, each.topic_partition.partition)
    }
    first = await parts.inspector.ask(lambda client: list_offsets(client, views, EARLIEST))
    end = await parts.inspector.ask(lambda client: list_offsets(client, views, LATEST))
    since = await _at(parts, views, what.since_ms)
    until = await _at(parts, views, what.until_ms)
    spans = {}
    for where, view in views.items():
        low = max(first[where], what.from_offset or 0, _found(since, where, end))
        high = min(end[where], what.before.get(where.partition, end[where]), _found(until, where, end, 1))
        if what.to_offset is not None:
            high = min(high, what.to_offset)
        stored = end[where] - first[where]
        size = (view.size_bytes or 0) / stored if stored else 0.0
        spans[where.partition] = Span(first=low, end=max(low, high), bytes_per_offset=size)
    return spans


async def _at(
    parts: Parts, views: Mapping[TopicPartition, object], timestamp_ms: int | None
) -> dict[TopicPartition, int] | None:
    if timestamp_ms is None:
        return None
    return await parts.inspector.ask(lambda client: list_offsets(client, views, timestamp_ms))


def _found(
    at: Mapping[TopicPartition, int] | None,
    where: TopicPartition,
    end: Mapping[TopicPartition, int],
    missing: int = 0,
) -> int:
    """Return the offset at a time: the end where every record is older, and no limit without a time."""
    if at is None:
        return end[where] if missing else 0
    return at[where] if at[where] >= 0 else end[where]


def scan_of(parts: Parts, client: FetchClient, topic: str, spans: Mapping[int, Span], what: Asked) -> Scan:
    """Return a scan that goes easy on the other clients of a broker in this process."""
    inside = parts.source.inside
    return Scan(
        client,
        topic,
        spans,
        what.wanted,
        run=parts.source.run,
        clock=parts.clock,
        work_of_others=None if inside is None else inside.requests,
    )
