"""Writes the tables of docs/reference/configuration.md from the declarations of the settings."""

from __future__ import annotations

from pathlib import Path

from splashdam.embedded_broker.configs.table import as_markdown

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"


def main() -> None:
    """Replace the tables, and keep the text above them."""
    written_by_hand, _, _ = PAGE.read_text().partition("## On a broker")
    PAGE.write_text(written_by_hand + as_markdown())


if __name__ == "__main__":
    main()
