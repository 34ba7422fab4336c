"""The clients that are measured, a file for each with its ways to send, and how they reach a secured cluster.

May import: clock, task.
"""
