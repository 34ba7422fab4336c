"""Writes the tables of docs/reference/options.md from the declarations of the producers' options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.security_settings import SecuritySettings
from splashdam.model.options import kafka_name

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"

FIRST, SECURITY = "Sending", "TLS and SASL"
SECTIONS = (FIRST, "Interceptors and batches", SECURITY, "As kafka-python has them")


def as_markdown() -> str:
    """The tables."""
    parts = []
    for title in SECTIONS:
        parts += [f"## {title}", "", "| option | Kafka's name | default | meaning |", "|---|---|---|---|"]
        parts += [_row(field) for field in attrs.fields(ProducerSettings) if _section(field) == title]
        parts.append("")
    return "\n".join(parts)


def _section(field: attrs.Attribute[Any]) -> str:
    if hasattr(attrs.fields(SecuritySettings), field.name):
        return SECURITY
    return str(field.metadata.get("section", FIRST))


def _row(field: attrs.Attribute[Any]) -> str:
    doc = field.metadata["doc"].replace("|", "\\|")
    return f"| `{field.name}` | `{kafka_name(field)}` | {_default(field.default)} | {doc} |"


def _default(value: Any) -> str:
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # a class, which its stub hides
        value = value.factory()
    if value is None:
        return ""
    return f"`{value!r}`" if type(value).__module__ == "builtins" else f"`{type(value).__name__}()`"


def main() -> None:
    """Replace the tables, and keep the text above them."""
    written_by_hand, _, _ = PAGE.read_text().partition(f"## {FIRST}")
    PAGE.write_text(written_by_hand + as_markdown())


if __name__ == "__main__":
    main()
