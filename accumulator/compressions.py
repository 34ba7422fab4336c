"""Which codec each topic's batches have, and how much it is expected to leave of them.

The estimate is that of Kafka's ``CompressionRatioEstimator``, one per topic and codec: it follows a batch
that compresses better in small steps and one that compresses worse in large ones, and is never below what was
seen last. With it, batches fill up to ``batch_size`` as the broker sees them, and not as they are appended.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.record.compression import Compression

MARGIN = 1.05
"""A batch is expected to be larger by this than the estimate says."""

BETTER_STEP, WORSE_STEP = 0.005, 0.05
"""The estimate falls by the one for a batch that compresses better, and rises by the other for one that does
not; but never past what was observed."""


class BatchCompressions:
    """Codec, level and estimated ratio by topic. The sender's task alone observes; any thread may ask.

    Args:
        default: for topics that are not named.
        by_topic: for those that are.

    Attributes:
        used: whether any topic's batches are compressed.
    """

    def __init__(self, default: Compression, by_topic: Mapping[str, Compression]) -> None:
        self._default = default
        self._by_topic = dict(by_topic)
        self._ratios: dict[tuple[str, Codec], float] = {}
        self.used = any(each.codec is not Codec.NONE for each in (default, *self._by_topic.values()))

    def of(self, topic: str) -> Compression:
        """Codec and level of a topic's batches."""
        return self._by_topic.get(topic, self._default)

    def ratio(self, topic: str) -> float:
        """Compressed by uncompressed size, as expected of the next batch; 1.0 at first."""
        return self._ratios.get((topic, self.of(topic).codec), 1.0)

    def expected_part(self, topic: str) -> float:
        """What is expected to be left of a batch, margin included; 1.0 without a codec."""
        return 1.0 if self.of(topic).codec is Codec.NONE else min(self.ratio(topic) * MARGIN, 1.0)

    def limit_bytes(self, topic: str, batch_bytes: int, most_bytes: int) -> int:
        """How many uncompressed bytes a batch holds that takes ``batch_bytes`` once it is compressed.

        Never less than ``batch_bytes``, so that what does not compress is batched as without a codec; and not
        more than ``most_bytes``, unless that is less.
        """
        part = self.expected_part(topic)
        if part == 1.0 or batch_bytes <= HEADER_BYTES:
            return batch_bytes
        likely_bytes = HEADER_BYTES + int((batch_bytes - HEADER_BYTES) / part)
        return max(batch_bytes, min(likely_bytes, most_bytes))

    def observe(self, topic: str, plain_bytes: int, packed_bytes: int) -> None:
        """A batch of this topic was compressed; both sizes are those of its records, without the header."""
        observed, estimated = packed_bytes / max(plain_bytes, 1), self.ratio(topic)
        if observed > estimated:
            estimated = max(estimated + WORSE_STEP, observed)
        elif observed < estimated:
            estimated = max(estimated - BETTER_STEP, observed)
        self._ratios[topic, self.of(topic).codec] = estimated

    def forget(self, topics: Container[str]) -> None:
        """Drops what was observed of other topics than these."""
        self._ratios = {key: ratio for key, ratio in self._ratios.items() if key[0] in topics}

    def start_over(self, topic: str, plain_bytes: int, packed_bytes: int) -> None:
        """A batch of this topic was too large and is divided: the next ones are not to rely on a codec."""
        self._ratios[topic, self.of(topic).codec] = max(1.0, packed_bytes / max(plain_bytes, 1))
