"""The producers of endurance and storm, in a process of their own, whose memory and descriptors are watched.

``streams`` and ``streams_in_loops`` are the kinds of producers; ``__main__`` is their process, and
``process`` starts it, reads its reports, and ends it.
"""
