"""The cause of a failure, extracted from the long texts in which Spark wraps it."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"^((?:[a-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception|Exit)): (\S.*)$", re.MULTILINE)
"""The last line of a traceback: module (or nothing), class, message."""

_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ([^\n]+)")
_CAME_TOO_LATE = "worker failed to connect back"
_BRIDGES = ("pyspark.", "py4j.", "org.", "java.")
"""Packages whose exceptions wrap others."""


def is_of_spark(error: BaseException) -> bool:
    """Whether pyspark or py4j raised it."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def cause_in(text: str) -> str:
    """Return one line: the message of our own error if there is one, else of the last Python error.

    Args:
        text: of Spark's exception, with the tracebacks of workers and of the JVM.
    """
    found = [match for match in _PYTHON_ERROR.finditer(text) if not match[1].startswith(_BRIDGES)]
    # If a stream's reader is refused, Spark's worker fails in turn, and its error comes last.
    of_ours = [match for match in found if match[1].startswith("splashdam.")]
    if found:
        module, kind, message = (of_ours or found)[-1].groups()
        return message if module.startswith("splashdam.") else f"{kind}: {message}"
    if _CAME_TOO_LATE in text:
        return (
            "a Python worker took longer to start than Spark's ten seconds; this machine is busy: try again"
        )
    named = _ERROR_CLASS.search(text)
    if named is not None:
        return named[1]
    return next((line for line in text.splitlines() if line.strip()), "Spark gave no reason")
