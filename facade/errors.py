"""All errors: the tree of ``model/errors.py``, and a class for each of Kafka's error codes.

Each class has ``retriable``, ``abortable``, ``fatal`` and ``remedy``; a broker's also has its ``code``.
``for_code`` answers the class for any code. Every name of ``kafka.errors`` is here, too, those of 2.x
included: another name of the same class, or a class that nothing here raises.
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
    """The class for a broker's error code: ``NoError`` for 0, ``UnknownServerError`` for an unknown one."""
    return _error_class(code) if code else NoError
