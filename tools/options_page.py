"""Writes the tables of docs/reference/options.md from the declarations of the producers' options."""

from __future__ import annotations

from pathlib import Path

from splashdam.client.settings.option_table import FIRST, as_markdown

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"


def main() -> None:
    """Replace the tables, and keep the text above them."""
    written_by_hand, _, _ = PAGE.read_text().partition(f"## {FIRST}")
    PAGE.write_text(written_by_hand + as_markdown())


if __name__ == "__main__":
    main()
