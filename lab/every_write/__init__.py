"""``make every-write``: makes each disk operation of a broker fail, one run per operation.

``workload`` has the steps of the clients, the books of what they sent and which answers they got, and the
checks of the directory afterwards. ``in_memory`` runs it on files in memory, in virtual time, and
``in_process`` on ``splashdam broker`` with real files.
"""
