"""Page 2: the records of a topic: browse, search, watch them come, look at one, send one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import trio

from splashdam.console.criteria import PLACES, WAYS, CriteriaError
from splashdam.console.decoding import laid_out, preview, whole
from splashdam.console.events import Tell, event_stream
from splashdam.console.reading import Asked, asked, cursor_text, open_client, scan_of, spans_of
from splashdam.console.routes import Page, Route, Visit, go_to
from splashdam.console.scan import CHUNK_BYTES, Hit, Scan, Walk
from splashdam.console.sending import line_of, partition_for, send_record
from splashdam.model.errors import KafkaError, message_of
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import TopicView
from splashdam.net.cluster.fetch_client import LATEST, FetchClient
from splashdam.net.http import HttpAnswer
from splashdam.record.json_lines import render_json

_ON_A_PAGE = 50
_PAGE_MS = 1_500.0
"""How long a page without script searches; it then shows how many bytes it has searched."""

_MOST_FOUND = 500
"""A search that streams pauses at as many, and says so."""

_TOLD_MS = 200.0
_MOST_TOLD = 100
"""Records of the live tail that are shown at once; the others are counted."""

_BEAT_MS = 5_000.0


async def topics(visit: Visit) -> HttpAnswer:
    """Let the visitor choose a topic."""
    seen = await visit.parts.sampler.look()
    found = [each for each in seen.overview.topics if not each.is_internal] if seen.overview else []
    internal = [each for each in seen.overview.topics if each.is_internal] if seen.overview else []
    return await visit.show("messages.html", seen=seen, topics=found, internal=internal)


async def _topic(visit: Visit) -> TopicView | None:
    name = visit.arguments["topic"]
    seen = await visit.parts.sampler.look()
    return next((each for each in seen.overview.topics if each.name == name), None) if seen.overview else None


async def records(visit: Visit) -> HttpAnswer:
    """Show the newest records that are wanted."""
    topic = await _topic(visit)
    if topic is None:
        return await visit.missing(f"no topic {visit.arguments['topic']}")
    shown: dict[str, Any] = {"hits": [], "scan": None, "older": None, "problem": ""}
    try:
        what = asked(visit.query)
        async with open_client(visit.parts) as client:
            spans = await spans_of(visit.parts, topic, what)
            scan = scan_of(visit.parts, client, topic.name, spans, what)
            hits = await _first_page(visit, scan, what)
        hits.sort(key=lambda hit: (hit.timestamp_ms, hit.offset), reverse=True)
        kept = hits if what.is_filtered else hits[:_ON_A_PAGE]
        ends = _ends(scan, hits, kept)
        is_more = any(ends[partition] > span.first for partition, span in spans.items())
        older = urlencode({**visit.query, "before": cursor_text(ends)}) if is_more else None
        shown |= {"hits": kept, "scan": scan, "older": older}
    except (CriteriaError, KafkaError) as error:
        shown["problem"] = message_of(error) if isinstance(error, KafkaError) else str(error)
    return await visit.show(
        "records.html",
        topic=topic,
        query=visit.query,
        address=urlencode(visit.query),
        places=PLACES,
        ways=WAYS,
        preview=preview,
        decode=_decoder(visit, topic),
        **shown,
    )


async def _first_page(visit: Visit, scan: Scan, what: Asked) -> list[Hit]:
    """Scan until there is enough for a page.

    Without a filter every partition contributes a page's worth, so that the newest of all are among them.
    """
    clock = visit.parts.clock
    until_ms = clock.now_ms() + _PAGE_MS
    hits: list[Hit] = []
    by_partition: dict[int, int] = {}
    while not scan.is_done and clock.now_ms() < until_ms:
        some = await scan.step()
        hits += some
        for hit in some:
            partition = hit.topic_partition.partition
            by_partition[partition] = by_partition.get(partition, 0) + 1
        if what.is_filtered and len(hits) >= _ON_A_PAGE:
            break
        if not what.is_filtered:
            scan.leave([number for number, count in by_partition.items() if count >= _ON_A_PAGE])
    return hits


def _ends(scan: Scan, hits: Sequence[Hit], kept: Sequence[Hit]) -> dict[int, int]:
    """Return where the next page begins: behind the records that this one does not show."""
    ends = dict(scan.searched_to)
    for hit in hits[len(kept) :]:
        partition = hit.topic_partition.partition
        ends[partition] = max(ends[partition], hit.offset + 1)
    return ends


def _decoder(visit: Visit, topic: TopicView) -> Any:
    """Return what decodes the values of an internal topic in a line."""

    def decode(hit: Hit) -> str:
        if not topic.is_internal or hit.record is None or hit.marker:
            return ""
        fields = visit.parts.source.decode(topic.name, hit.record)
        return "" if fields is None else "  ".join(f"{name}: {value}" for name, value in fields.items())

    return decode


async def search(visit: Visit) -> HttpAnswer:
    """Stream what is found, the newest first, until all is searched or the page is closed."""
    topic = await _topic(visit)
    if topic is None:
        return await visit.missing(f"no topic {visit.arguments['topic']}")

    async def tells(tell: Tell) -> None:
        try:
            what = asked(visit.query)
            async with open_client(visit.parts) as client:
                spans = await spans_of(visit.parts, topic, what)
                scan = scan_of(visit.parts, client, topic.name, spans, what)
                await _tell_all(visit, topic, scan, tell)
        except CriteriaError as error:
            await tell("problem", str(error))
        except KafkaError as error:
            await tell("problem", message_of(error))

    return event_stream(tells)


async def _tell_all(visit: Visit, topic: TopicView, scan: Scan, tell: Tell) -> None:
    clock, found, told_at_ms = visit.parts.clock, 0, float("-inf")
    while not scan.is_done:
        hits = await scan.step()
        found += len(hits)
        if hits:
            await tell("records", await _rows(visit, topic, hits))
        if hits or clock.now_ms() - told_at_ms >= _TOLD_MS:
            told_at_ms = clock.now_ms()
            await tell("progress", await _progress(visit, scan, found, "searching"))
        if found >= _MOST_FOUND and not scan.is_done:
            older = urlencode({**visit.query, "before": cursor_text(scan.searched_to)})
            await tell("more", older)
            await tell("done", await _progress(visit, scan, found, "paused"))
            return
    await tell("done", await _progress(visit, scan, found, "done"))


async def _rows(visit: Visit, topic: TopicView, hits: Sequence[Hit]) -> str:
    values = {"hits": hits, "topic": topic, "preview": preview, "decode": _decoder(visit, topic)}
    return (await visit.parts.rendering.render("record_rows.html", values)).decode()


async def _progress(visit: Visit, scan: Scan, found: int, state: str) -> str:
    values = {"scan": scan, "found": found, "state": state}
    return (await visit.parts.rendering.render("progress.html", values)).decode()


async def tail(visit: Visit) -> HttpAnswer:
    """Stream records as they are written."""
    topic = await _topic(visit)
    if topic is None:
        return await visit.missing(f"no topic {visit.arguments['topic']}")

    async def tells(tell: Tell) -> None:
        try:
            what = asked(visit.query)
            numbers = [each.topic_partition.partition for each in topic.partitions if each.leader >= 0]
            if what.partition is not None:
                numbers = [each for each in numbers if each == what.partition]
            async with open_client(visit.parts, max_wait_ms=500) as client:
                positions = await client.offsets(topic.name, numbers, LATEST)
                await tell("started", "")
                await _tell_news(visit, topic, Tail(visit, client, topic, what, positions), tell)
        except CriteriaError as error:
            await tell("problem", str(error))
        except KafkaError as error:
            await tell("problem", message_of(error))

    return event_stream(tells)


class Tail:
    """Reads what comes behind positions.

    Args:
        visit: whose page shows it.
        client: fetches.
        topic: which one.
        what: which records.
        positions: the next offset of each partition.
    """

    def __init__(
        self, visit: Visit, client: FetchClient, topic: TopicView, what: Asked, positions: Mapping[int, int]
    ) -> None:
        self._parts = visit.parts
        self._client = client
        self._topic = topic
        self._what = what
        self._positions = dict(positions)

    async def step(self) -> list[Hit]:
        """Wait at most half a second for news; return what of them is wanted, the newest first."""
        hits: list[Hit] = []
        fetched = await self._client.fetch_bytes(
            self._topic.name, self._positions, max_partition_bytes=CHUNK_BYTES
        )
        for number, batches in fetched.items():
            where = TopicPartition(self._topic.name, number)
            walk = Walk(where, batches, self._what.wanted, low=self._positions[number])
            hits += await walk.all(self._parts.source.run, self._parts.clock)
            self._positions[number] = walk.next_offset
        hits.sort(key=lambda hit: (hit.timestamp_ms, hit.offset), reverse=True)
        return hits


async def _tell_news(visit: Visit, topic: TopicView, tail: Tail, tell: Tell) -> None:
    clock = visit.parts.clock
    told_at_ms, found, left_out = clock.now_ms(), 0, 0
    while True:
        hits = await tail.step()
        found += len(hits)
        left_out += max(0, len(hits) - _MOST_TOLD)
        if hits:
            await tell("records", await _rows(visit, topic, hits[:_MOST_TOLD]))
            told = f"{found:,} since you watch".replace(",", "\u202f")
            if left_out:
                told += f", {left_out:,} of them came too fast to be shown".replace(",", "\u202f")
            await tell("progress", told)
            told_at_ms = clock.now_ms()
            # A busy topic would keep the browser rendering.
            await trio.sleep(_TOLD_MS / 1000)
        elif clock.now_ms() - told_at_ms >= _BEAT_MS:
            await tell("beat", "")
            told_at_ms = clock.now_ms()


async def record(visit: Visit) -> HttpAnswer:
    """Show one record in every form that it has."""
    topic = await _topic(visit)
    partition, offset = visit.arguments["partition"], visit.arguments["offset"]
    missing = f"no record {visit.arguments['topic']}-{partition}@{offset}"
    if topic is None or not (partition + offset).isdigit() or not (partition + offset).isascii():
        return await visit.missing(missing)
    where, number = TopicPartition(topic.name, int(partition)), int(offset)
    if where.partition >= len(topic.partitions):
        return await visit.missing(missing)
    what = asked({"partition": partition, "from": offset, "to": str(number + 1)})
    async with open_client(visit.parts) as client:
        spans = await spans_of(visit.parts, topic, what)
        scan = scan_of(visit.parts, client, topic.name, spans, what)
        hits = [] if scan.is_done else await scan.step()
    if not hits:
        return await visit.missing(missing)
    hit = hits[0]
    headers = () if hit.record is None else hit.record.headers
    fields = None
    if hit.record is not None and topic.is_internal and not hit.marker:
        fields = visit.parts.source.decode(topic.name, hit.record)
    shows_all = "all" in visit.query
    return await visit.show(
        "record.html",
        topic=topic,
        hit=hit,
        key=None if hit.record is None else whole(hit.record.key, shows_all=shows_all),
        value=None if hit.record is None else whole(hit.record.value, shows_all=shows_all),
        headers=[(name, preview(each, 2000)) for name, each in headers],
        fields=None if fields is None else laid_out(fields),
        line="" if hit.record is None else render_json(where, hit.record).decode(),
    )


async def send(visit: Visit) -> HttpAnswer:
    """Send the record of the form, and show it."""
    topic = await _topic(visit)
    if topic is None:
        return await visit.missing(f"no topic {visit.arguments['topic']}")
    parts = visit.parts
    try:
        line = line_of(visit.form)
        where = TopicPartition(topic.name, partition_for(topic, line))
        offset = await parts.inspector.ask(
            lambda client: send_record(client, where, line, parts.clock.wall_ms())
        )
    except KafkaError as error:
        return await _form(visit, topic, message_of(error))
    except ValueError as error:
        return await _form(visit, topic, str(error))
    return go_to(f"/topics/{quote(topic.name, safe='')}/records/{where.partition}/{offset}")


async def sending(visit: Visit) -> HttpAnswer:
    """Show the form that sends a record."""
    topic = await _topic(visit)
    if topic is None:
        return await visit.missing(f"no topic {visit.arguments['topic']}")
    return await _form(visit, topic)


async def _form(visit: Visit, topic: TopicView, problem: str = "") -> HttpAnswer:
    return await visit.show(
        "send.html", status=400 if problem else 200, topic=topic, form=visit.form, problem=problem
    )


PAGE = Page(
    name="Messages",
    order=2,
    key="m",
    routes=(
        Route("GET", "/messages", topics),
        Route("GET", "/topics/{topic}/messages", records),
        Route("GET", "/topics/{topic}/messages/search", search),
        Route("GET", "/topics/{topic}/messages/tail", tail),
        Route("GET", "/topics/{topic}/records/{partition}/{offset}", record),
        Route("GET", "/topics/{topic}/send", sending),
        Route("POST", "/topics/{topic}/send", send),
    ),
)
