"""Every option of the producers as a row: for docs/reference/options.md and for ``splashdam options``.

``tools/options_page.py`` writes ``as_markdown`` into the page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs

from splashdam.client.settings.keywords import ProducerOptions
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.security_settings import SecuritySettings
from splashdam.model.options import kafka_name, unit_of

FIRST, SECURITY = "Sending", "TLS and SASL"
SECTIONS = (FIRST, "Interceptors and batches", SECURITY, "As kafka-python has them")


class OptionRow(NamedTuple):
    """One option.

    Attributes:
        name: in Python.
        type: of the value, as Python's type annotations have it.
        default: as Python writes it; empty for None.
        unit: of a number; empty without one.
        kafka: its dotted name in properties.
        doc: meaning.
        section: one of ``SECTIONS``.
    """

    name: str
    type: str
    default: str
    unit: str
    kafka: str
    doc: str
    section: str


def option_rows() -> list[OptionRow]:
    """Return all options, by section."""
    rows = [
        OptionRow(
            field.name,
            _type(field.name),
            _default(field.default),
            unit_of(field),
            kafka_name(field),
            field.metadata["doc"],
            _section(field),
        )
        for field in attrs.fields(ProducerSettings)
    ]
    return sorted(rows, key=lambda row: SECTIONS.index(row.section))


def as_markdown() -> str:
    """Return the table as Markdown, with a part for each section."""
    parts = []
    for title in SECTIONS:
        parts += [f"## {title}", "", "| option | type | default | unit | Kafka's name | meaning |"]
        parts += ["|---|---|---|---|---|---|"]
        parts += [_line(row) for row in option_rows() if row.section == title]
        parts.append("")
    return "\n".join(parts)


def _line(row: OptionRow) -> str:
    default = f"`{row.default}`" if row.default else ""
    kind, doc = (text.replace("|", "\\|") for text in (f"`{row.type}`", row.doc))
    return f"| `{row.name}` | {kind} | {default} | {row.unit} | `{row.kafka}` | {doc} |"


def _section(field: attrs.Attribute[Any]) -> str:
    if hasattr(attrs.fields(SecuritySettings), field.name):
        return SECURITY
    return str(field.metadata.get("section", FIRST))


def _type(name: str) -> str:
    written: Any = ProducerOptions.__annotations__[name]  # a reference that nobody has resolved
    return str(getattr(written, "__forward_arg__", written))


def _default(value: Any) -> str:
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # attrs' stub declares the class a function
        value = value.factory()
    if value is None:
        return ""
    return repr(value) if type(value).__module__ == "builtins" else f"{type(value).__name__}()"
