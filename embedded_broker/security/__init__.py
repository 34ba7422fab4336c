"""Who may talk to the broker, and how: listeners, TLS, users, and the SASL session of a connection.

Nothing but the settings is imported for a broker whose listeners are all PLAINTEXT.
May import: answering, configs, quotas.
"""
