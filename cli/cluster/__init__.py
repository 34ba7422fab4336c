"""What is asked of a cluster: its topics, its groups, whether it keeps Kafka's promises, and how fast.

May import: clusters, endings, measuring, once, output, parameters.
"""
