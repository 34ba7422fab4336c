"""The cause of a failure, extracted from the long texts in which Spark wraps it."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception|Exit|Warning)|(?<=\.)[A-Z]\w*): (\S.*)$",
    re.MULTILINE,
)
"""The last line of a traceback: module (or nothing), class, message. With a module the class may have any
name, as pyarrow's ``ArrowInvalid``."""

_MUTE_ERROR = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)$", re.MULTILINE
)
"""A traceback whose error has no message."""

_JAVA_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*([A-Z][\w$]*: \S.*)$", re.MULTILINE)

_ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ([^\n]+)")
_OF_ANALYSER = re.compile(r" SQLSTATE: 42\w{3}\b.*")
"""What follows the sentence of Spark's analyser and parser: SQL's class of wrong names and syntax, and a
place in a text that is not shown."""
_CAME_TOO_LATE = "worker failed to connect back"
_BRIDGES = ("pyspark.", "py4j.", "org.", "java.")
"""Packages whose exceptions wrap others."""


def is_of_spark(error: BaseException) -> bool:
    """Whether pyspark or py4j raised it."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def cause_in(text: str) -> str:
    """Return one line: the message of our own error if there is one, else of the last Python error, else what
    Spark says, with its cause.

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
    if mute := _MUTE_ERROR.findall(text):
        return str(mute[-1])
    named = _ERROR_CLASS.search(text)
    said = next((line for line in text.splitlines() if line.strip()), "Spark gave no reason")
    said = said if named is None else _OF_ANALYSER.sub("", named[1])
    causes = [cause for cause in _JAVA_CAUSE.findall(text) if cause.partition(": ")[2] not in said]
    return f"{said}; cause: {causes[-1]}" if causes else said
