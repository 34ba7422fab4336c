"""The ``splashdam`` command: logs, topics, groups, clusters, brokers and pipelines from a shell.

Lives here: what all commands share, among it `connecting` for those that ask one, and in folders one file per
command: `broker`, `cluster`, `records`, `pipeline`, `reference`. `measuring` is what ``splashdam bench``
shares with ``benchmarks/``. There is nothing that a program would want to import.
May import: anything.
"""

from splashdam.cli.entry import main as main
