"""Writes the tables of docs/reference/metrics.md from the declarations of the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from splashdam.client.observing.metric_table import COUNT, MISSING, NODE, OWN, PRODUCER, TOPIC, Metric

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"

FIRST = "## Group `producer-metrics`"


def as_markdown() -> str:
    """Return the tables as Markdown."""
    parts = [
        *_table(FIRST, PRODUCER),
        *_table("### In the same group, but not in Kafka", OWN),
        *_table("## Groups `producer-node-metrics.node-N`, one per broker", NODE),
        *_table("## Groups `producer-topic-metrics.T`, one per topic", TOPIC),
        *_table("## Group `kafka-metrics-count`", [COUNT]),
        "## What Java's producer has and this one does not",
        "",
        "| metrics | why |",
        "|---|---|",
        *(f"| {_quoted(names)} | {why} |" for names, why in MISSING.items()),
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, rows: Iterable[Metric]) -> list[str]:
    lines = [f"| `{row.name}` | {row.kind.value} | {row.unit} | {row.doc} |" for row in rows]
    return [title, "", "| name | kind | unit | meaning |", "|---|---|---|---|", *lines, ""]


def _quoted(names: str) -> str:
    return ", ".join(name if "(" in name else f"`{name}`" for name in names.split(", "))


def main() -> None:
    """Replace the tables, and keep the text above them."""
    written_by_hand, _, _ = PAGE.read_text().partition(FIRST)
    PAGE.write_text(written_by_hand + as_markdown())


if __name__ == "__main__":
    main()
