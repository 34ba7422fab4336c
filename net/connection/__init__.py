"""One connection to a broker: frames, correlation, requests in flight, negotiation, time-outs; what listens.

May import: clock, connect.
"""
