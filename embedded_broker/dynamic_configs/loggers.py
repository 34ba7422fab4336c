"""The broker's loggers as Kafka's BROKER_LOGGER resource: levels that can be looked at and set, and last no
longer than the process.

``root`` is this package's logger: what else the program logs is not the broker's business.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from splashdam.embedded_broker.configs.described import ConfigEntry, ConfigSource
from splashdam.model.broker_errors import ErrorCode, InvalidRequestError, error_for
from splashdam.model.log_text import quoted

ROOT = "root"
_PACKAGE = "splashdam"
_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


def logger_entries() -> list[ConfigEntry]:
    """Every logger with its effective level."""
    return [
        ConfigEntry(name=name, value=_level_name(logger), source=ConfigSource.DYNAMIC_BROKER_LOGGER, doc="")
        for name, logger in sorted(_loggers().items())
    ]


def check_levels(levels: Mapping[str, str | None]) -> None:
    """Refuses levels that cannot be set; None takes a logger's own level away.

    Raises:
        BrokerResponseError: INVALID_CONFIG (40): no such logger or level; INVALID_REQUEST (42): the level of
            the root logger has to be one.
    """
    known = _loggers()
    for name, level in levels.items():
        if name not in known:
            raise error_for(ErrorCode.INVALID_CONFIG, f"logger {quoted(name)} does not exist")
        if level is None and name == ROOT:
            raise InvalidRequestError("the root logger needs a level")
        if level is not None and level not in _LEVELS:
            raise error_for(
                ErrorCode.INVALID_CONFIG, f"{quoted(level)} is not one of {', '.join(sorted(_LEVELS))}"
            )


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Sets levels that have been checked."""
    known = _loggers()
    for name, level in levels.items():
        known[name].setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _loggers() -> dict[str, logging.Logger]:
    """Those of the broker that are in use, by name."""
    found = {ROOT: logging.getLogger(_PACKAGE)}
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"{_PACKAGE}.embedded_broker"):
            found[name] = logging.getLogger(name)
    return found


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in reversed(_LEVELS.items()) if number <= level), "TRACE")
