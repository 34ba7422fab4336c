"""Page 3: consumer groups, their lag, and a reset with a preview; transactions, and what they hold back."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from splashdam.console.reading import time_of
from splashdam.console.routes import Page, Route, Visit, go_to
from splashdam.model.errors import KafkaError, message_of
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import GroupPartitionView, GroupView
from splashdam.net.admin.groups import commit_offsets, committed_offsets
from splashdam.net.admin.resets import Offsets, Target, check_empty
from splashdam.net.http import HttpAnswer

_SHOWN = 500
WAYS = (
    ("earliest", "the oldest record"),
    ("latest", "the end"),
    ("offset", "an offset"),
    ("time", "a time, in UTC"),
    ("shift", "so many records further"),
)


async def groups(visit: Visit) -> HttpAnswer:
    """Show all groups."""
    seen = await visit.parts.sampler.look()
    found = await visit.parts.sampler.look_at_groups()
    wanted = visit.query.get("q", "").strip()
    shown = [each for each in found.groups or () if wanted.lower() in each.group_id.lower()]
    shown.sort(key=lambda each: (-each.lag, each.group_id))
    return await visit.show("groups.html", seen=seen, found=found, groups=shown, wanted=wanted)


async def _group(visit: Visit) -> GroupView | None:
    found = await visit.parts.sampler.look_at_groups()
    name = visit.arguments["group"]
    return next((each for each in found.groups or () if each.group_id == name), None)


def _most_lag_first(partition: GroupPartitionView) -> tuple[float, TopicPartition]:
    lag = 0.5 if partition.lag is None else partition.lag  # without a commit: behind those that lag
    return -lag, partition.topic_partition


async def group(visit: Visit) -> HttpAnswer:
    """Show one group with its members and partitions."""
    seen = await visit.parts.sampler.look()
    found = await _group(visit)
    if found is None:
        return await visit.missing(f"no group {visit.arguments['group']}")
    groups_seen = await visit.parts.sampler.look_at_groups()
    partitions = sorted(found.partitions, key=_most_lag_first)
    history = groups_seen.lag_history(found.group_id)
    return await visit.show(
        "group.html",
        seen=seen,
        group=found,
        partitions=partitions[:_SHOWN],
        members={each.member_id: each for each in found.members},
        history=history,
        series=json.dumps([[at_ms / 1000 for at_ms, _ in history], [lag for _, lag in history]]),
    )


async def reset(visit: Visit) -> HttpAnswer:
    """Show where a reset would move a group; nothing is changed."""
    found = await _group(visit)
    if found is None:
        return await visit.missing(f"no group {visit.arguments['group']}")
    shown: dict[str, Any] = {"problem": "", "before": {}, "after": None}
    if "to" in visit.query:
        try:
            shown |= await _preview(visit, found)
        except KafkaError as error:
            shown["problem"] = message_of(error)
        except ValueError as error:
            shown["problem"] = str(error)
    return await _reset_page(visit, found, **shown)


async def _reset_page(visit: Visit, found: GroupView, **shown: Any) -> HttpAnswer:
    after = shown.get("after")
    moves = "" if after is None else json.dumps([[*where, offset] for where, offset in sorted(after.items())])
    return await visit.show("reset.html", group=found, query=visit.query, ways=WAYS, moves=moves, **shown)


async def _preview(visit: Visit, found: GroupView) -> dict[str, Any]:
    target, topic = _target(visit), visit.query.get("topic", "")
    inspector = visit.parts.inspector
    await inspector.ask(lambda client: check_empty(client, found.group_id))
    committed = await inspector.ask(lambda client: committed_offsets(client, found.group_id))
    before = {where: each.offset for where, each in committed.items() if topic in ("", where.topic)}
    if not before:
        raise ValueError("the group has committed nothing there")
    after = await inspector.ask(lambda client: target.offsets(client, before, before))
    return {"before": before, "after": after}


def _target(visit: Visit) -> Target:
    to, value = visit.query["to"], visit.query.get("value", "").strip()
    if to in {"earliest", "latest"}:
        return Target(to=to)
    if to == "time":
        at_ms = time_of(value, "the time")
        if at_ms is None:
            raise ValueError("say which time")
        return Target(to_ms=at_ms)
    digits = value.removeprefix("-") if to == "shift" else value
    if to not in {"offset", "shift"} or not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise ValueError(f"{value!r} is no number of records" if to == "shift" else f"{value!r} is no offset")
    return Target(shift_by=int(value)) if to == "shift" else Target(to_offset=int(value))


async def move(visit: Visit) -> HttpAnswer:
    """Commit the offsets that the preview has shown."""
    found = await _group(visit)
    if found is None:
        return await visit.missing(f"no group {visit.arguments['group']}")
    group_id, inspector = found.group_id, visit.parts.inspector
    try:
        moves = _moves(visit.form.get("moves", ""))
        offsets = {where: OffsetAndMetadata(offset) for where, offset in moves.items()}
        await inspector.ask(lambda client: check_empty(client, group_id))
        await inspector.ask(lambda client: commit_offsets(client, group_id, offsets))
    except KafkaError as error:
        return await _reset_page(visit, found, problem=message_of(error), before={}, after=None)
    except ValueError as error:
        return await _reset_page(visit, found, problem=str(error), before={}, after=None)
    visit.parts.sampler.forget_groups()
    return go_to(f"/groups/{quote(group_id, safe='')}")


def _moves(text: str) -> Offsets:
    """Read what the form of the preview holds.

    Raises:
        ValueError: it is not that.
    """
    wrong = ValueError("this is no preview of a reset; begin again")
    try:
        given: Any = json.loads(text)
        found: dict[Any, Any] = {TopicPartition(topic, number): offset for topic, number, offset in given}
    except (ValueError, TypeError, RecursionError):
        raise wrong from None
    if not found or not all(
        isinstance(where.topic, str) and type(where.partition) is int and type(offset) is int and offset >= 0
        for where, offset in found.items()
    ):
        raise wrong
    return found


async def transactions(visit: Visit) -> HttpAnswer:
    """Show transactions, and which of them hold the last stable offset back."""
    seen = await visit.parts.sampler.look()
    inspector = visit.parts.inspector
    shown: dict[str, Any] = {"transactions": (), "held": (), "problem": ""}
    try:
        ends = {} if seen.overview is None else seen.overview.end_offsets
        shown |= {"transactions": await inspector.transactions(), "held": await inspector.held_back(ends)}
    except KafkaError as error:
        shown["problem"] = message_of(error)
    return await visit.show("transactions.html", seen=seen, **shown)


PAGE = Page(
    name="Groups",
    order=3,
    key="g",
    routes=(
        Route("GET", "/groups", groups),
        Route("GET", "/groups/{group}", group),
        Route("GET", "/groups/{group}/reset", reset),
        Route("POST", "/groups/{group}/reset", move),
        Route("GET", "/transactions", transactions),
    ),
)
