"""Authentication and authorization: users, the SASL session of a connection, ACLs.

``authentication`` has the session of a connection and checks passwords and tokens against ``users``;
``authorizer`` decides by the ``acls``, ``permissions`` are Kafka's operations and resource types. ``access``
holds users, ACLs and quotas, which the brokers of a cluster share. Only the settings are imported for a
broker whose listeners are all PLAINTEXT.
May import: configs, execution, quotas.
"""
