"""What clients tell of themselves (KIP-714).

May import: configs.
"""
