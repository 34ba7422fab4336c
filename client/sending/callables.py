"""What can be known about a callable before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

UNKNOWN_COUNT = 99
"""The count of a callable that takes any number of arguments or does not say."""


def positional_count(function: Callable[..., Any]) -> int:
    """How many positional arguments ``function`` takes, its ``self`` not counted.

    Plug-ins of two generations are told apart by this once, when they are configured: trying a call and
    looking for a ``TypeError`` would call them twice and hide the errors they raise themselves.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in C, without a signature
        return UNKNOWN_COUNT
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return UNKNOWN_COUNT
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters)
