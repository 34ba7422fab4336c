"""What is set while brokers run: where it is kept, what may be set, and the changes that clients ask for.

May import: answering, configs, controller, telemetry, topics.
"""
