"""The server of clients: frames in, turns of the loop, answers out. ``registry.py`` says who answers.

May import: answering, configs, controller, dynamic_configs, fetching, groups, producing, quotas, security,
telemetry, topics, transactions.
"""
