"""The ``splashdam`` command: broker, produce, tail.

Lives here: one file per command, and nothing a program would want to import.
May import: every room.
"""

from splashdam.cli.entry import main as main
