"""Entry point of the installed command: names what to install if click or rich is missing."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from types import FrameType
from typing import NoReturn

NEEDED = ("click", "rich")
FAILURE = 1
USAGE_ERROR = 2
INTERRUPTED = 130
"""What a shell reports for a process ended by Ctrl-C (128 + SIGINT)."""


def leave_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the process: the handler of Ctrl-C while modules are imported, and after the command's last word.

    KeyboardInterrupt would end in a traceback there, or be lost in an import.
    """
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command with the arguments of the process and exit with its status.

    Ctrl-C ends the process at once while modules are imported and from the command's last word on.

    Status 0 is success, 1 a failure, 2 wrong usage or missing packages, 130 an interrupt, 143 and
    129 SIGTERM and SIGHUP.
    """
    _leave_at_ctrl_c()
    # Libraries in Rust, as deltalake, would print their warnings before our error that says the same.
    os.environ.setdefault("RUST_LOG", "off")
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # from a page of help: commands write by `splashdam.cli.output`
        sys.stderr.write(f"Error: writing to standard output: {error.strerror or error}\n")
        sys.exit(FAILURE)
    finally:
        _leave_at_ctrl_c()


def _leave_at_ctrl_c() -> None:
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):  # nohup and `&` have it ignored
        signal.signal(signal.SIGINT, leave_at_once)


def _run() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"splashdam: the command needs {' and '.join(missing)}. "
            "Install with: pip install 'splashdam[cli]'\n"
        )
        sys.exit(USAGE_ERROR)
    from splashdam.cli.commands import splashdam

    splashdam(prog_name="splashdam")
