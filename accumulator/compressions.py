"""Codec and expected compression ratio of each topic.

The estimate is that of Kafka's ``CompressionRatioEstimator``, one per topic and codec: it follows better
ratios in small steps and worse ones in large steps, and is never below the last observed ratio. With it,
batches fill up to ``batch_size`` in compressed bytes. ``docs/decisions/delivery-control.md`` names the
differences.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.record.compression import Compression

MARGIN = 1.05
"""Safety factor on the estimated ratio."""

BETTER_STEP, WORSE_STEP = 0.005, 0.05
"""Steps of the estimate towards a better and towards a worse ratio; it stays above the observed one."""


class BatchCompressions:
    """Codec, level and estimated ratio by topic. Only the sender's task updates it; any thread may read.

    Args:
        default: codec of topics without their own.
        by_topic: codecs of single topics.

    Attributes:
        used: whether any topic is compressed.
    """

    def __init__(self, default: Compression, by_topic: Mapping[str, Compression]) -> None:
        self._default = default
        self._by_topic = dict(by_topic)
        self._ratios: dict[tuple[str, Codec], float] = {}
        self.used = any(each.codec is not Codec.NONE for each in (default, *self._by_topic.values()))

    def of(self, topic: str) -> Compression:
        """Return codec and level of a topic."""
        return self._by_topic.get(topic, self._default)

    def ratio(self, topic: str) -> float:
        """Return the estimated ratio of compressed to uncompressed size; 1.0 at first."""
        return self._ratios.get((topic, self.of(topic).codec), 1.0)

    def expected_part(self, topic: str) -> float:
        """Return the estimated ratio with its margin, at most 1.0; 1.0 without a codec."""
        return 1.0 if self.of(topic).codec is Codec.NONE else min(self.ratio(topic) * MARGIN, 1.0)

    def limit_bytes(self, topic: str, batch_bytes: int, most_bytes: int) -> int:
        """Return the number of uncompressed bytes that are expected to compress to ``batch_bytes``.

        It is at least ``batch_bytes``, so that incompressible records are batched as without a codec, and
        otherwise at most ``most_bytes``: an open batch is charged for what it holds uncompressed.
        """
        part = self.expected_part(topic)
        if part == 1.0 or batch_bytes <= HEADER_BYTES:
            return batch_bytes
        likely_bytes = HEADER_BYTES + int((batch_bytes - HEADER_BYTES) / part)
        return max(batch_bytes, min(likely_bytes, most_bytes))

    def observe(self, topic: str, plain_bytes: int, packed_bytes: int) -> None:
        """Update the estimate after a batch was compressed; both sizes are without the header."""
        observed, estimated = packed_bytes / max(plain_bytes, 1), self.ratio(topic)
        if observed > estimated:
            estimated = max(estimated + WORSE_STEP, observed)
        elif observed < estimated:
            estimated = max(estimated - BETTER_STEP, observed)
        self._ratios[topic, self.of(topic).codec] = estimated

    def forget(self, topics: Container[str]) -> None:
        """Drop the estimates of all topics but these."""
        self._ratios = {key: ratio for key, ratio in self._ratios.items() if key[0] in topics}

    def start_over(self, topic: str, plain_bytes: int, packed_bytes: int) -> None:
        """Reset the estimate after a batch was too large and was split."""
        self._ratios[topic, self.of(topic).codec] = max(1.0, packed_bytes / max(plain_bytes, 1))
