"""Faults that an embedded broker or cluster commits on demand, and the log of the requests it received.

``faults`` is the interface for tests, ``interceptor`` applies faults to requests, ``messages`` knows topics,
partitions and errors of any API. A broker without faults and without a request log runs none of this code.
May import: nothing.
"""
