"""Checks the numbers that a record is sent with."""

from __future__ import annotations

import operator

from splashdam.model.errors import IllegalArgumentError

_MOST_PARTITION = 2**31 - 1


def check_partition(partition: object) -> int:
    """Returns ``partition`` if a topic can have one of this number.

    Raises:
        TypeError: it is no int.
        ValueError: it is negative, or does not fit the protocol's 32 bits.
    """
    number = _whole("partition", partition)
    if number < 0:
        raise ValueError(f"partition must be 0 or more, not {number}")
    if number > _MOST_PARTITION:
        raise ValueError(f"partition must be at most {_MOST_PARTITION}, not {number}")
    return number


def check_timestamp_ms(timestamp_ms: object) -> int:
    """Returns ``timestamp_ms`` if a record can have it.

    Raises:
        TypeError: it is no int.
        OverflowError: it does not fit 64 bits.
        IllegalArgumentError: it is negative, which Java's ``ProducerRecord`` refuses, too. A ValueError.
    """
    number = _whole("timestamp_ms", timestamp_ms)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"timestamp_ms={number} does not fit 64 bits; it is milliseconds since 1970")
    if number < 0:
        raise IllegalArgumentError(
            f"timestamp_ms={number} is negative; give milliseconds since 1970, or None for the present time"
        )
    return number


def _whole(name: str, value: object) -> int:
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return operator.index(value)
