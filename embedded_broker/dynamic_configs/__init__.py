"""Dynamic configs: stored ones, the resources that have them, and changes that clients ask for.

May import: execution, configs, controller, telemetry, topics.
"""
