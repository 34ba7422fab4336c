"""aiokafka's producer, on splashdam: ``from splashdam.aiokafka import AIOKafkaProducer``.

Each error that a producer raises is here by aiokafka's name, too: as in ``aiokafka.errors``.
"""

from __future__ import annotations

from splashdam.client.aiokafka_producer import AIOKafkaProducer, BatchBuilder
from splashdam.model.aiokafka_errors import *
from splashdam.model.broker_errors import *
from splashdam.model.errors import *
from splashdam.model.kafka_python_errors import *

_ERRORS = {
    name for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, KafkaError)
}

__all__ = sorted({*_ERRORS, "AIOKafkaProducer", "BatchBuilder"})
