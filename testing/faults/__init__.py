"""Faults on demand: what an embedded broker or cluster does wrong when a test says so, and what it was asked.

``faults`` is the language, ``switchboard`` lets faults happen and knows the errors of any API, ``places``
its topics. Nothing of it runs in a broker without faults.
May import: nothing.
"""
