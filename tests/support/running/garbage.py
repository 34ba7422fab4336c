"""Keeps what pytest has collected out of the garbage collector's way.

Modules and tests stay until the end, some hundred megabytes of them. While they are made a collection finds
nothing; later each full one, which a test may ask for, would look through all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """No garbage is collected meanwhile; what is there at the end is set aside."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        if was_enabled:
            gc.enable()
