"""Build batches: records are encoded as they are appended; the fast path of ``send``.

May import: outcomes.
"""
