"""``make storm``: minutes of sending to three brokers that are killed, restarted, moved and slowed down.

Then everything that was acknowledged is looked for with kafka-python. The brokers are an ``EmbeddedCluster``
in this process, on files and TCP; ``weather.py`` is what happens to them. Producers and books are those of
``endurance``.
"""
