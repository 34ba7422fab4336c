"""One connection to a broker: frames, correlation, requests in flight, negotiation, time-outs.

May import: sasl, wire, model.
"""
