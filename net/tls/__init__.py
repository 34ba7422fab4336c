"""TLS on both sides: contexts, errors in words, and listeners that speak something else.

May import: model.
"""
