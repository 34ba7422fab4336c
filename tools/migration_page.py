"""Writes the table of librdkafka's properties in docs/how-to/migration.md from their declaration."""

from __future__ import annotations

import re
from pathlib import Path

from splashdam.client.settings.other_names import as_markdown

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "migration.md"
TABLE = re.compile(r"\| property of librdkafka \|.*\n(\|.*\n)*")


def main() -> None:
    """Replace the table, and keep the text around it."""
    PAGE.write_text(TABLE.sub(lambda _: as_markdown(), PAGE.read_text()))


if __name__ == "__main__":
    main()
