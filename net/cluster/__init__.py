"""Clients of a whole cluster: they find leaders, read records, and serve the pipeline, `tail` and followers.

May import: ``connection`` and the root of net, wire, record, model.
"""
