"""What an answer may be, how it is encoded, and how much of one turn of the broker's loop it may take.

May import: nothing.
"""
