"""splashdam: a Kafka producer SDK for Python with a broker in the box."""

__version__ = "0.1.0"
