"""What each request needs to be allowed, as in Kafka's ``KafkaApis``; loaded where there is an authorizer.

A guard is called instead of the handler of its API: it removes from a request what the client may not do,
lets the handler answer the rest, and adds the refusals to the answer (``refusals``). Handlers do not know of
guards, except those whose answers depend on permissions, which authorize themselves
(``cluster.asks_itself``).
May import: dynamic_configs, execution, fetching, groups, serving.
"""
