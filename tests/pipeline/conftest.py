"""One Spark session for all tests that start a JVM."""

from __future__ import annotations

from spark_fixture import spark

__all__ = ["spark"]
