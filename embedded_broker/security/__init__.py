"""Who may talk to the broker and who may do what: users, the SASL session of a connection, ACLs.

``authentication`` has the session of a connection and checks passwords and tokens against ``users``;
``authorizer`` decides by the ``acls``, ``permissions`` are Kafka's operations and resource types. ``access``
is what the brokers of a cluster share of it. Nothing but the settings is imported for a broker whose
listeners are all PLAINTEXT.
May import: answering, configs, quotas.
"""
