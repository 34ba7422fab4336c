"""At which operations a test of faults has them: `make test` takes a third, `make test-rest` all.

Such a test does the same work again and again, and lets one operation of the disk fail after the other. The
run's seed draws with which of them the third begins, so a few runs of `make test` have them all.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import pytest


class FaultPoints(NamedTuple):
    """Some of the operations that could fail.

    Attributes:
        first: the number of the first one.
        apart: its distance from the next one.
    """

    first: int
    apart: int

    def of(self, operations: range) -> range:
        """Return those of `operations` at which this run has faults."""
        return operations[self.first :: self.apart]


@pytest.fixture(params=[3, pytest.param(1, marks=pytest.mark.slow)], ids=["a third", "all"])
def fault_points(request: pytest.FixtureRequest) -> FaultPoints:
    """Which operations fail, one after the other."""
    order = request.config.pluginmanager.get_plugin("running-order")
    assert order is not None
    return FaultPoints(
        zlib.crc32(f"{order.seed} {request.node.name}".encode()) % request.param, request.param
    )
