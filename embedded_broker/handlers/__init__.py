"""One file per API key; ApiVersions is computed from what is registered here.

Lives here: what the broker answers to each request, and which versions it answers.
May import: configs, controller, dynamic_configs, execution, fetching, groups, producing, quotas, security,
serving, telemetry, topics, transactions.
"""
