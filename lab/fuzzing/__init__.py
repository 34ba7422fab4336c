"""Hostile requests to brokers (``broker``), and mutated batches for the twins of the kernel (``records``)."""
