"""For test suites: a pytest plugin, faults on demand, virtual time, and the contract of a Kafka cluster.

Lives here: the fixtures (``pytest_plugin``), faults and request log of an embedded broker (``faults/``), a
network with faults (``faulty_connect``), a clock in virtual time (``clock``), and ``contract/``, behaviours
that any Kafka cluster can be checked against. Simulator, storms and fuzzers are not installed: ``lab/``.
May import: client, embedded_broker, model, net, record, wire.
"""
