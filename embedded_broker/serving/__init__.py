"""Connections of clients: sockets, TLS and SASL, request frames in, answers out.

``socket_server`` accepts connections, ``client_connection`` serves one, ``dispatch`` decodes a request and
calls its handler, ``registry`` has the handlers.

May import: configs, controller, dynamic_configs, execution, fetching, groups, producing, quotas, security,
telemetry, topics, transactions.
"""
