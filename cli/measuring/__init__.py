"""Measures splashdam and other producers: shared by ``splashdam bench`` and ``benchmarks/``.

Lives here: the table of scenarios, one file per client, the turns they take, the figures and their tables.
A client is imported only in the process that measures it: imports cost memory and threads, which would count.
May import: connecting.
"""
