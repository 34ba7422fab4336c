"""What a log remembers of idempotent and transactional producers, and how that is found again after a crash.

May import: directories, files, segments, transaction_marker.
"""
