"""Where the tests find material that is not part of the project; a test that needs it skips without it."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARED = Path(__file__).resolve().parents[4] / "shared"


def shared(relative: str) -> Path:
    """A path beside the checkout: Kafka's message schemas, log directories a real Kafka wrote."""
    path = _SHARED / relative
    if not path.exists():
        folder = relative.partition("/")[0]
        pytest.skip(f"needs ../shared/{folder}, which is not beside this checkout")
    return path
