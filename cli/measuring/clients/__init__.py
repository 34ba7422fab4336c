"""One file per measured client, with its ways to send; ``security`` has their options for TLS and SASL.

May import: clock, task.
"""
