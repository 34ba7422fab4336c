"""The ``splashdam`` command: bench, broker, dump-log, produce, tail, verify-log.

Lives here: one file per command, and nothing a program would want to import; `measuring` is what
  ``splashdam bench`` shares with ``benchmarks/``.
May import: every room.
"""

from splashdam.cli.entry import main as main
