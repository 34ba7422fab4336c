"""What a log remembers of idempotent and transactional producers, and how that is found again after a crash.

May import: directories (a number's form), segments, files, transaction_marker.
"""
