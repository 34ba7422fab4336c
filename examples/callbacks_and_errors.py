"""What happens when records do not arrive. Run it: python examples/callbacks_and_errors.py"""

from splashdam import KafkaProducer, RecordMetadata
from splashdam.errors import InvalidTopicError, KafkaError, MessageTooLargeError

delivered: list[int] = []
problems: list[str] = []


def on_success(metadata: RecordMetadata) -> None:
    """Callbacks run on the producer's own thread: keep them short and never wait in them."""
    delivered.append(metadata.offset)


def on_error(error: BaseException) -> None:
    # Every KafkaError says whether trying again can help.
    retriable = isinstance(error, KafkaError) and error.retriable
    problems.append(f"{type(error).__name__} ({'retriable' if retriable else 'permanent'}): {error}")


with KafkaProducer(bootstrap_servers="embedded:./data", max_request_size=10_000_000) as producer:
    producer.send("orders", b"one").add_callback(on_success).add_errback(on_error)

    # This record passes our own limit, but not the broker's (max.message.bytes, about 1 MB). It fails alone.
    producer.send("orders", bytes(2_000_000)).add_callback(on_success).add_errback(on_error)

    # The producer lives on: one bad record costs that record and nothing else.
    producer.send("orders", b"two").add_callback(on_success).add_errback(on_error)
    producer.flush()  # waits for all three, callbacks included; raises nothing by itself

    # Instead of callbacks: ask the future. get() raises the very error of this record.
    try:
        producer.send("orders", bytes(2_000_000)).get(timeout=10)
    except MessageTooLargeError as error:
        print(f"refused: {error}")

    # send() itself raises errors that are known before anything is sent.
    try:
        producer.send("not a topic name!", b"value")
    except (InvalidTopicError, ValueError) as error:
        print(f"refused: {error}")

print(f"delivered at offsets {delivered}")
print("\n".join(problems))
