"""How a command fails: one message on stderr that says what to do, and a status that scripts can use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from splashdam.model.errors import BrokerResponseError, KafkaConfigurationError, KafkaError

INTERRUPTED = 130
"""What a shell reports for a process ended by Ctrl-C (128 + SIGINT)."""


def explained(error: BaseException) -> str:
    """The error's text, which says what to do; its kind, where it says nothing."""
    return str(error) or type(error).__name__


@contextmanager
def failures_reported() -> Iterator[None]:
    """Turns what Kafka and the operating system refuse into a message and status 1, without a traceback.

    A setting that is wrong by itself is wrong usage, status 2, as if the option's own check had
    found it. A broken pipe passes, since it says that the reader of our output has seen enough. A group with
    one error in it, as trio's nurseries raise, is reported as that error.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (KafkaError, OSError) as error:
        raise _reported(error) from error
    except BaseExceptionGroup as group:
        only = _only_error(group)
        if isinstance(only, BrokenPipeError) or not isinstance(only, KafkaError | OSError):
            raise only from None
        raise _reported(only) from group


@contextmanager
def file_failures_reported() -> Iterator[None]:
    """As ``failures_reported``, for commands that open a log themselves: no other one knows more."""
    try:
        with failures_reported():
            yield
    except click.ClickException as failure:
        if isinstance(failure.__cause__, BrokerResponseError):
            raise click.ClickException(failure.__cause__.message) from failure
        raise


def _reported(error: BaseException) -> click.ClickException:
    if isinstance(error, KafkaConfigurationError):
        return click.UsageError(explained(error), click.get_current_context(silent=True))
    return click.ClickException(explained(error))


def _only_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
