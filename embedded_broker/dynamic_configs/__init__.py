"""Dynamic configs: stored ones, the resources that have them, and changes that clients ask for.

May import: answering, configs, controller, telemetry, topics.
"""
