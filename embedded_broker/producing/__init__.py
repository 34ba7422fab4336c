"""What a produced batch goes through before the log takes it, and the way of requests that need nothing else.

May import: answering, security, topics, transactions.
"""
