"""Client quotas: byte rates, request time, partition mutations and connection rates, and throttling.

Nothing is imported for a broker on which no quota was ever set.
May import: execution.
"""
