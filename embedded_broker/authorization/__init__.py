"""What each request needs to be allowed, as in Kafka's ``KafkaApis``; loaded where there is an authorizer.

A guard stands before the handler of each API: it takes out of a request what the client may not do, lets the
handler answer the rest, and adds what was refused to the answer. Handlers know nothing of it, but for those
that say in their answers what may not be seen, and ask themselves (``cluster.asks_itself``).
May import: answering, dynamic_configs, fetching, groups, security, serving.
"""
