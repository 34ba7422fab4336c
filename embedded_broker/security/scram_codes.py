"""SCRAM's mechanisms as Kafka's requests number them."""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MECHANISMS: Mapping[int, str] = {code: mechanism for mechanism, code in CODES.items()}

MOST_ITERATIONS = 16_384
"""Kafka's own maximum for what its clients set."""
