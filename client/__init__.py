"""What applications touch: producers, futures, serializers, partitioners.

Lives here: KafkaProducer (blocking), AsyncKafkaProducer (trio), and the waiters that wake threads, trio and
asyncio. ``local.py`` alone wires a producer to an embedded broker.
May import: sender, accumulator, net, record, wire, model (and embedded_broker from ``local.py``).
"""
