"""Types of keys and values: a producer takes what its serializers take, and type checkers know it.

Run it: python examples/typed_records.py
"""

import json
from dataclasses import asdict, dataclass

from splashdam import KafkaProducer


@dataclass
class Order:
    customer: str
    planks: int


def to_json(order: Order) -> bytes:
    return json.dumps(asdict(order)).encode()


def place(producer: KafkaProducer[str, Order], order: Order) -> int:
    # producer.send("orders", order.planks) is an error of the type checker: it wants an Order.
    return producer.send("orders", order, key=order.customer).get(timeout=10).offset


# mypy and pyright infer KafkaProducer[str, Order]; without serializers it is KafkaProducer[Any, Any].
with KafkaProducer(
    bootstrap_servers="embedded:./data", key_serializer=str.encode, value_serializer=to_json
) as producer:
    print("at offset", place(producer, Order("anna", 5)))
