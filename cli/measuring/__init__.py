"""Measures producers, ours and those we did not write: shared by ``splashdam bench`` and ``benchmarks/``.

Lives here: the table of scenarios, one file per client, the turns they take, the figures and their tables.
Clients are imported in the process that measures them, and nowhere else.
May import: connecting.
"""
