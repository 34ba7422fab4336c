"""Appends of produced batches: validation, the append itself, and the fast path of usual requests.

May import: execution, security, topics, transactions.
"""
