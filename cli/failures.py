"""How a command fails: one message on stderr that says what to do, and a status that scripts can use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from splashdam.model.errors import KafkaError

INTERRUPTED = 130
"""What a shell reports for a process ended by Ctrl-C (128 + SIGINT)."""


def explained(error: BaseException) -> str:
    """The error's message with its remedy, where it knows one and does not say it already."""
    text = str(error) or type(error).__name__
    remedy = error.remedy if isinstance(error, KafkaError) else ""
    return text if not remedy or remedy in text else f"{text.rstrip('.')}. What to do: {remedy}."


@contextmanager
def failures_reported() -> Iterator[None]:
    """Turns what Kafka and the operating system refuse into a message and status 1, without a traceback.

    A broken pipe passes, since it says that the reader of our output has seen enough. A group with one error
    in it, as trio's nurseries raise, is reported as that error.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (KafkaError, OSError) as error:
        raise click.ClickException(explained(error)) from error
    except BaseExceptionGroup as group:
        only = _only_error(group)
        if isinstance(only, BrokenPipeError) or not isinstance(only, KafkaError | OSError):
            raise only from None
        raise click.ClickException(explained(only)) from group


def _only_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
