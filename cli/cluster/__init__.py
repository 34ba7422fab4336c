"""What is asked of a cluster: its topics, its groups, whether it keeps Kafka's promises, and how fast.

May import: commands, connecting, exiting, measuring, output, parameters.
"""
