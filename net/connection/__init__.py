"""One connection to a broker: frames, correlation ids, in-flight requests, version negotiation, timeouts.

May import: clock, connect.
"""
