"""Results as a table: a row for each behaviour, a column for each client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from splashdam.testing.contract.behaviour import Behaviour
from splashdam.testing.contract.running import Result, Verdict

SIGNS = {Verdict.HOLDS: "✓", Verdict.DIFFERS: "≠", Verdict.BROKEN: "✗", Verdict.LEFT_OUT: "·"}
LEGEND = "✓ holds, ≠ the client differs (see below), ✗ broken, · the client has no such operation"


def grid(results: Sequence[Result]) -> tuple[list[str], list[tuple[Behaviour, list[Result]]]]:
    """The clients' names, and for each behaviour its results in that order."""
    clients = list(dict.fromkeys(each.client for each in results))
    rows: dict[Behaviour, dict[str, Result]] = {}
    for each in results:
        rows.setdefault(each.behaviour, {})[each.client] = each
    return clients, [(behaviour, [row[name] for name in clients]) for behaviour, row in rows.items()]


def counts(results: Sequence[Result]) -> str:
    """One line: how many fared how."""
    parts = (f"{sum(each.verdict is verdict for each in results)} {verdict}" for verdict in Verdict)
    return ", ".join(parts)


def remarks(results: Sequence[Result]) -> list[Result]:
    """Those of which there is something to say."""
    return [each for each in results if each.verdict in (Verdict.DIFFERS, Verdict.BROKEN)]


def markdown(title: str, results: Sequence[Result]) -> str:
    """A section of a page: the table, and what is to be said of what does not hold."""
    return "\n".join(_lines(title, results)) + "\n"


def _lines(title: str, results: Sequence[Result]) -> Iterator[str]:
    clients, rows = grid(results)
    yield f"## {title}"
    yield ""
    yield f"{counts(results)}."
    area = ""
    for behaviour, row in rows:
        if behaviour.area != area:
            area = behaviour.area
            yield ""
            yield f"| {area} | {' | '.join(clients)} |"
            yield f"|---|{':-:|' * len(clients)}"
        yield f"| {behaviour.title} | {' | '.join(SIGNS[each.verdict] for each in row)} |"
    said = remarks(results)
    if said:
        yield ""
    for each in said:
        yield f"- {SIGNS[each.verdict]} *{each.behaviour.title}*, {each.client}: {each.why}"
