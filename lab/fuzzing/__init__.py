"""Hostile requests to brokers (``broker``), and mutated batches for both kernels (``records``)."""
