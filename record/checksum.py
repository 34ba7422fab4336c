"""CRC-32C, the checksum of record batches."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

from splashdam.model.values import Buffer


def _load() -> Callable[[Buffer], int]:
    """Load the function of the ``crc32c`` package without importing the package.

    The package's ``__init__`` reads its own version and imports a command-line tool: fifty modules of the
    standard library, which take longer to import than all of splashdam. The extension module needs none of
    them. If it is not found as expected, the package is imported as usual.
    """
    package = importlib.util.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places and list(places))
    if spec is None or spec.loader is None:
        return _imported()
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Buffer], int] = module.crc32c
    return function


def _imported() -> Callable[[Buffer], int]:
    from crc32c import crc32c as function

    return function


crc32c = _load()
"""CRC-32C of a buffer; releases the GIL for large ones."""
