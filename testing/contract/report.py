"""Contract results as tables: a row for each behaviour, a column for each client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from splashdam.testing.contract.behaviour import Behaviour
from splashdam.testing.contract.running import Result, Verdict

SIGNS = {Verdict.HOLDS: "✓", Verdict.DIFFERS: "≠", Verdict.BROKEN: "✗", Verdict.LEFT_OUT: "·"}
LEGEND = (
    "✓ holds, ≠ the client differs (see below), ✗ broken, · left out: client or cluster lacks the operation"
)


def by_area(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    """Yield each area with its results."""
    for area in dict.fromkeys(each.behaviour.area for each in results):
        yield area, [each for each in results if each.behaviour.area == area]


def grid(results: Sequence[Result]) -> tuple[list[str], list[tuple[Behaviour, list[Result]]]]:
    """Return the clients, and for each behaviour its results in the order of the clients.

    A client that can do nothing in this area is left out.
    """
    clients = _clients(results)
    rows: dict[Behaviour, dict[str, Result]] = {}
    for each in results:
        rows.setdefault(each.behaviour, {})[each.client] = each
    return clients, [(behaviour, [row[name] for name in clients]) for behaviour, row in rows.items()]


def _clients(results: Sequence[Result]) -> list[str]:
    taking_part = (each.client for each in results if each.verdict is not Verdict.LEFT_OUT)
    return list(dict.fromkeys(taking_part) or dict.fromkeys(each.client for each in results))


def counts(results: Sequence[Result]) -> str:
    """Return one line with the number of results of each verdict."""
    parts = (f"{sum(each.verdict is verdict for each in results)} {verdict}" for verdict in Verdict)
    return ", ".join(parts)


def remarks(results: Sequence[Result]) -> list[Result]:
    """Return the results that need a remark: those that differ or are broken."""
    return [each for each in results if each.verdict in (Verdict.DIFFERS, Verdict.BROKEN)]


def markdown(title: str, results: Sequence[Result]) -> str:
    """Return a page's section for one cluster: the tables, then the remarks."""
    return "\n".join(_lines(title, results)) + "\n"


def _lines(title: str, results: Sequence[Result]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield f"{counts(results)}."
    for area, of_area in by_area(results):
        clients, rows = grid(of_area)
        yield ""
        yield f"| {area} | {' | '.join(clients)} |"
        yield f"|---|{':-:|' * len(clients)}"
        for behaviour, row in rows:
            yield f"| {behaviour.title} | {' | '.join(SIGNS[each.verdict] for each in row)} |"
    noted = remarks(results)
    if noted:
        yield ""
    for each in noted:
        yield f"- {SIGNS[each.verdict]} *{each.behaviour.title}*, {each.client}: {each.why}"


def across(clusters: Mapping[str, Sequence[Result]]) -> str:
    """Return one table for several clusters: one sign if they agree, else the exceptions by name."""
    return "".join(f"{line}\n" for line in _lines_across(clusters))


def _lines_across(clusters: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    yield "| cluster | |"
    yield "|---|---|"
    for name, results in clusters.items():
        yield f"| {name} | {counts(results)} |"
    everything = [each for results in clusters.values() for each in results]
    found = {
        (each.behaviour.name, each.client, name): each
        for name, results in clusters.items()
        for each in results
    }
    for area, of_area in by_area(everything):
        clients = _clients(of_area)
        yield ""
        yield f"| {area.replace('_', ' ')} | {' | '.join(clients)} |"
        yield f"|---|{':-:|' * len(clients)}"
        for behaviour in dict.fromkeys(each.behaviour for each in of_area):
            cells = (
                _cell({name: found.get((behaviour.name, client, name)) for name in clusters})
                for client in clients
            )
            yield f"| {behaviour.title} | {' | '.join(cells)} |"
    yield ""
    yield f"{LEGEND}."
    noted = {
        (each.behaviour.title, each.client, each.why): SIGNS[each.verdict] for each in remarks(everything)
    }
    holding = {(each.behaviour, each.client) for each in everything if each.verdict is Verdict.HOLDS}
    for name, results in clusters.items():
        for each in results:
            if each.verdict is Verdict.LEFT_OUT and (each.behaviour, each.client) in holding:
                sign = f"{SIGNS[each.verdict]} {name}:"
                noted[each.behaviour.title, each.client, each.why] = sign
    yield ""
    for (title, client, why), sign in noted.items():
        yield f"- {sign} *{title}*, {client}: {why}"


def _cell(results: Mapping[str, Result | None]) -> str:
    signs = {name: "?" if each is None else SIGNS[each.verdict] for name, each in results.items()}
    if len(set(signs.values())) == 1:
        return next(iter(signs.values()))
    most = max(signs.values(), key=list(signs.values()).count)
    others = (f"{name} {sign}" for name, sign in signs.items() if sign != most)
    return f"{most}, {', '.join(others)}"
