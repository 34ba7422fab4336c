"""What went wrong, out of the long texts in which Spark wraps it."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"^((?:[a-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception|Exit)): (\S.*)$", re.MULTILINE)
"""The last line of a traceback: perhaps the module, the class, the message."""

_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ([^\n]+)")
_CAME_TOO_LATE = "worker failed to connect back"
_BRIDGES = ("pyspark.", "py4j.", "org.", "java.")
"""Modules and packages whose errors wrap others."""


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark raised it, or the bridge to its JVM."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def cause_in(text: str) -> str:
    """One line that says what happened: our error or Python's, at the bottom of what Spark tells.

    Args:
        text: of Spark's exception, tracebacks of workers and of the JVM included.
    """
    found = [match for match in _PYTHON_ERROR.finditer(text) if not match[1].startswith(_BRIDGES)]
    # Where a stream's reader is refused, Spark's own worker stumbles over it, and that error comes last.
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
