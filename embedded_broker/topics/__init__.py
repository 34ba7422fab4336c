"""The topics of a broker, its own among them, and what a handler asks first of a partition.

May import: answering, configs, controller.
"""
