"""One connection to a broker: frames, correlation, requests in flight, negotiation, time-outs; what listens.

May import: the clock and ``connect`` of net, wire, model.
"""
