"""All errors of splashdam, and one class for each of Kafka's error codes.

Each class has ``retriable``, ``abortable``, ``fatal`` and ``remedy``; the class of a broker's error also has
its ``code``, and ``for_code`` returns the class for a code. Every name of ``kafka.errors``, of kafka-python
2.x and 3.x, is here: as another name of the same class, or as a class that splashdam never raises.
"""

from __future__ import annotations

from splashdam.model.broker_errors import *
from splashdam.model.broker_errors import error_class as _error_class
from splashdam.model.errors import *
from splashdam.model.kafka_python_errors import *

_ERRORS = {
    name for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, KafkaError)
}

__all__ = sorted({*_ERRORS, "for_code"})


def for_code(code: int) -> type[BrokerResponseError]:
    """Return the class for an error code: ``NoError`` for 0, ``UnknownServerError`` for an unknown code."""
    return _error_class(code) if code else NoError
