"""``make every-write``: fails each single operation of a broker on its disk, one run for each.

``workload`` has what clients do, what they know, and what must be true of the directory afterwards.
``in_memory`` runs it on files in memory, in virtual time, and ``in_process`` on ``splashdam broker`` with
real files.
"""
