"""Connections of clients: sockets, TLS and SASL, request frames in, answers out.

``socket_server`` accepts connections, ``client_connection`` serves one, ``registry`` knows the handlers.

May import: answering, configs, controller, dynamic_configs, fetching, groups, producing, quotas, security,
telemetry, topics, transactions.
"""
