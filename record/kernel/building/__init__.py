"""Build batches: records are encoded as they are appended; the straight path of ``send``.

May import: outcomes.
"""
