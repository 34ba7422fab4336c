"""How much a client may ask for: rates, who they are set for, and how long who exceeds them has to wait.

Nothing is imported for a broker on which no quota was ever set.
May import: answering.
"""
