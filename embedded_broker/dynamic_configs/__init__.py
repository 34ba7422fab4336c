"""Dynamic configs: stored ones, the resources that have them, and changes that clients ask for.

May import: configs, controller, execution, telemetry, topics.
"""
