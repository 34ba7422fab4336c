"""What log lines are about, beside their text: a dict that formatters can show or ship.

Every logger is ``splashdam`` or below it. ``docs/logging.md`` lists levels and fields.
"""

from __future__ import annotations


def fields(**values: object) -> dict[str, dict[str, object]]:
    """The ``extra`` of a logging call: ``record.splashdam`` is ``values``. Nothing secret goes in."""
    return {"splashdam": values}
