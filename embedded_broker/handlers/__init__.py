"""One file per API key; ApiVersions is computed from what is registered here.

Lives here: what the broker answers to each request, and which versions it answers.
May import: execution, configs, controller, dynamic_configs, fetching, groups, producing, quotas, security,
serving, telemetry, topics, transactions.
"""
