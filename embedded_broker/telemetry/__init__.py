"""What clients tell of themselves (KIP-714).

May import: groups.
"""
