"""Talks to a broker, request by request, and brokers in processes or in one loop."""
