"""The ``splashdam`` command: what can be done to logs, topics, groups and clusters, or with a broker.

Lives here: one file per command, `clusters` and `tables` for those that ask a cluster, and nothing that a
program would want to import; `measuring` is what ``splashdam bench`` shares with ``benchmarks/``.
May import: every room.
"""

from splashdam.cli.entry import main as main
