"""Embedded clusters as programs get them, in ``splashdam``: with faults, a request log and a clock."""

from __future__ import annotations

from splashdam.embedded_broker import embedded_cluster
from splashdam.testing.embedded import UnderTest


class EmbeddedCluster(UnderTest, embedded_cluster.EmbeddedCluster):
    __doc__ = embedded_cluster.EmbeddedCluster.__doc__
