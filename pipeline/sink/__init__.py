"""The way from a DataFrame into topics: at_least_once, dedup or exactly_once.

Lives here: writers for batch and stream, producers kept per worker, transactions decided by the driver.
May import: as the room.
"""
