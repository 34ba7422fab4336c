"""Settings of brokers, topics and groups: names, types, defaults, and how DescribeConfigs shows them.

May import: nothing.
"""
