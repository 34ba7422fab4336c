"""What a sender knows of the cluster, and how it asks.

May import: wire, model.
"""
