"""Measures kafka-python."""

from __future__ import annotations

from splashdam.cli.measuring.clients import kafka_like
from splashdam.cli.measuring.clock import Measurement
from splashdam.cli.measuring.task import Task

CALLS = kafka_like.CALLS


def measure(task: Task) -> Measurement:
    """Measure with a new producer; see `kafka_like.measure`."""
    from kafka import KafkaProducer

    return kafka_like.measure(KafkaProducer, CALLS[task.call], task)
