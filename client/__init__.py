"""What applications touch: producers, futures, serializers, partitioners.

Lives here: KafkaProducer (blocking), AsyncKafkaProducer (trio), AsyncioKafkaProducer and its form with
aiokafka's names, and the waits of threads, trio and asyncio.
A record's way: ``producer.py``, ``sending/intake.py``, ``partitioning/placing.py``, then the accumulator.
``local.py`` alone connects a producer to an embedded broker.
May import: accumulator, console, embedded_broker, model, net, record, sender.
"""
