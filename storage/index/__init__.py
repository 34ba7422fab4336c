"""The indexes of a segment: from offsets, timestamps and aborted transactions to places in its log.

May import: files.
"""
