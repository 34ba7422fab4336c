"""Log lines with their fields, for people and for machines that read ``key=value``."""

from __future__ import annotations

import json
import logging


class KeyValueFormatter(logging.Formatter):
    """Puts a line's fields behind its text: ``… client_id=shop-1 batches=3``.

    Texts with spaces, quotes or equals signs are shown as JSON strings. Lines without fields, such as other
    libraries', are left as they are; tracebacks come behind, as usual.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line before its traceback."""
        values = getattr(record, "splashdam", None)
        line = super().formatMessage(record)
        if not isinstance(values, dict) or not values:
            return line
        return line + " " + " ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _shown(value: object) -> str:
    text = str(value)
    plain = text and not any(character.isspace() or character in '="' for character in text)
    return text if plain else json.dumps(text)
