"""Keeps what pytest has collected out of the garbage collector's way.

Modules and tests stay until the end, some hundred megabytes of them. While they are made a collection finds
nothing; later each full one, which a test may ask for, would look through all of them. Tests that make
thousands of partitions would spend a third of their time on young objects: these collections are rare, too.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

_YOUNG_OBJECTS = 20_000
"""Made between two collections: python's 700 suit a program that runs for long in little memory."""


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
        gc.set_threshold(_YOUNG_OBJECTS)
        if was_enabled:
            gc.enable()
