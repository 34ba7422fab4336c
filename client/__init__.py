"""What applications touch: producers, futures, serializers, partitioners.

Lives here: KafkaProducer (blocking), AsyncKafkaProducer (trio), and the waiters that wake threads, trio and
asyncio. ``local.py`` alone wires a producer to an embedded broker.
May import: accumulator, embedded_broker, model, net, record, sender.
"""
