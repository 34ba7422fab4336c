"""The behaviours of the contract, one area in each file.

May import: behaviour, raw_connection, vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from splashdam.testing.contract.behaviour import BEHAVIOURS, Behaviour

AREAS = (
    "produce",
    "reading",
    "offsets",
    "topics",
    "groups",
    "transactions",
    "protocol",
    "batches",
    "fetching",
    "transaction_states",
    "cleaning",
    "membership",
    "share_of_partitions",
    "answers",
    "security",
    "authentication",
)
"""The modules, in the order of the report."""


def all_behaviours() -> Sequence[Behaviour]:
    """Return every behaviour, area by area; those that a program declares itself come last."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
    places = {area: place for place, area in enumerate(AREAS)}
    return sorted(BEHAVIOURS, key=lambda each: places.get(each.area, len(places)))
