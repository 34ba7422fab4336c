"""Observability of a producer: metrics, OpenTelemetry, Prometheus, metrics push to brokers.

May import: base, interceptors, settings.
"""
