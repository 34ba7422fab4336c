"""Batches are compressed before they go into a request; what turns out not to fit then stays behind."""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.errors import KafkaError
from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.produce import answer_of_failure, check_codec


def load(
    context: SenderContext, completion: Completion, batches: Sequence[ProducerBatch], version: int
) -> list[ProducerBatch]:
    """Seals batches in flight, the first time with their topic's codec. The guard is not held.

    How large they become was a guess until now. One that grew beyond ``batch_size`` because of it and is too
    large for a request is divided as if the broker had refused it; one that does not fit beside the others
    goes with the next request; one whose codec the broker does not know fails.

    Returns:
        those to be sent now; together at most ``max_request_size`` bytes, or a single one.
    """
    accumulator, now_ms = context.accumulator, context.clock.now_ms()
    max_request_size = context.settings.max_request_size
    loaded: list[ProducerBatch] = []
    used_bytes = 0

    def place(batch: ProducerBatch, size_bytes: int) -> bool:
        if size_bytes > max_request_size and batch.attempts == 0 and accumulator.outgrew(batch):
            refusal = MessageTooLargeError(f"{size_bytes} bytes compressed, above max_request_size")
            completion.settle(batch, answer_of_failure(batch, refusal), now_ms)
            return False
        if loaded and used_bytes + size_bytes > max_request_size:
            completion.put_back(batch, now_ms)
            return False
        accumulator.give_surplus_back(batch)
        return True

    for batch in batches:
        try:
            check_codec(accumulator.compressions.of(batch.topic_partition.topic), version)
            _seal(accumulator, batch)
        except KafkaError as error:
            context.guard.run(completion.refuse_unsent, batch, error)
            continue
        size_bytes = batch.size_bytes
        if context.guard.run(place, batch, size_bytes):
            loaded.append(batch)
            used_bytes += size_bytes
    return loaded


def _seal(accumulator: RecordAccumulator, batch: ProducerBatch) -> None:
    compressions, topic = accumulator.compressions, batch.topic_partition.topic
    compression, first = compressions.of(topic), batch.sealed is None
    batch.seal(compression)
    if first and compression.codec is not Codec.NONE:
        plain_bytes, packed_bytes = batch.uncompressed_bytes - HEADER_BYTES, batch.size_bytes - HEADER_BYTES
        telling = 2 * plain_bytes >= accumulator.batch_bytes  # few records compress badly, whatever they hold
        if telling or packed_bytes < compressions.ratio(topic) * plain_bytes:
            compressions.observe(topic, plain_bytes, packed_bytes)
