"""Client metrics that clients push to the broker (KIP-714).

May import: execution, groups.
"""
