"""How a command exits: with one message for a failure, and a status that scripts can use.

SIGTERM and SIGHUP end a command as Ctrl-C does; the status tells which signal it was.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from splashdam.cli.entry import leave_at_once
from splashdam.cli.parameters import flag_of_setting
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import KafkaConfigurationError, KafkaError, told


def explained(what: BaseException | str, name_of: Callable[[str], str] = flag_of_setting) -> str:
    """Return an error's message, or the name of its class if it has none; or a text of a producer.

    Settings that it names are called by the flags of the current command.

    Args:
        what: the error, or the text.
        name_of: what `flags_of_command` has returned, for a thread that runs no command.
    """
    return str(told(what, name_of)) or type(what).__name__


@contextmanager
def failures_reported() -> Iterator[None]:
    """Report errors of Kafka and of the operating system as a message with status 1, without a traceback.

    A wrong setting is wrong usage, status 2, as if click had found it. A broken pipe is raised again: it only
    means that the reader of the output has closed it. An exception group with a single error, as trio's
    nurseries raise, is reported as that error.
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
    """Like `failures_reported`, for commands that open logs themselves: hints about brokers do not fit."""
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
    """Return the error of a group that is to be told: an interrupt, or the first one.

    Tasks that ask the same dead broker all fail, and one message is enough. An error of this program's own is
    returned with its group.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    interrupts, _ = error.split(KeyboardInterrupt)
    _, bugs = error.split((KafkaError, OSError, click.ClickException))
    if interrupts is None and bugs is not None and len(error.exceptions) > 1:
        return error
    chosen: BaseException = interrupts or error
    while isinstance(chosen, BaseExceptionGroup):
        chosen = chosen.exceptions[0]
    return chosen


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Sent by service managers and by terminals that close."""


class EndedBySignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised in the main thread as Python raises KeyboardInterrupt for Ctrl-C.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """Return what a shell reports for the signal: 128 plus its number, 130 for Ctrl-C."""
    return 128 + (interrupt.number if isinstance(interrupt, EndedBySignal) else signal.SIGINT)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Raise `EndedBySignal` for SIGTERM and SIGHUP inside; a signal that is ignored (nohup) stays ignored."""
    with _handled_by(_interrupt, ENDING):
        yield


@contextmanager
def signals_interrupt_trio() -> Iterator[None]:
    """As `signals_interrupt`, around a ``trio.run``, whose loop an exception at any place would break.

    An interrupt that the loop's nurseries have wrapped leaves as itself.
    """
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        # The way of Ctrl-C, whose handler trio has replaced by one that interrupts only where its loop allows
        # it.
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:
            # Ctrl-C is ignored (``&`` in a shell), so trio has no handler: end the process at once.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    try:
        with _handled_by(handle, ENDING):
            yield
    except (KeyboardInterrupt, BaseExceptionGroup) as error:
        interrupt = _only_error(error)
        if not isinstance(interrupt, KeyboardInterrupt):
            raise
        raise (EndedBySignal(came[0]) if came else interrupt) from None


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP interrupt a block without an ``await`` in a trio program.

    A write that blocks, to a pipe that nobody reads, would otherwise survive them. Nothing inside may open a
    nursery.
    """
    with _handled_by(signal.default_int_handler, (signal.SIGINT,)):
        yield


@contextmanager
def interrupts_end_the_process() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as it does while modules are imported; for the broker's process."""
    with _handled_by(leave_at_once, (signal.SIGINT,)):
        yield


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block is done, so that no step is left half done."""
    came: list[int] = []
    with _handled_by(lambda number, _frame: came.append(number), (signal.SIGINT, *ENDING)):
        yield
    if came:
        raise KeyboardInterrupt if came[0] == signal.SIGINT else EndedBySignal(came[0])


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], object], numbers: Iterable[signal.Signals]
) -> Iterator[None]:
    """Set a handler for signals inside; those that are ignored (nohup) stay ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number, earlier in before.items() if earlier is not signal.SIG_IGN]
    try:
        for number in caught:
            signal.signal(number, handler)
        yield
    finally:
        came: KeyboardInterrupt | None = None
        for number in caught:
            is_set = False
            while not is_set:
                try:
                    signal.signal(number, before[number])
                    is_set = True
                except KeyboardInterrupt as interrupt:  # setting a handler first calls that of a late signal
                    came = interrupt
        if came is not None:
            raise came


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise EndedBySignal(number)
