"""What a producer tells of itself: metrics, spans, telemetry to the brokers, whole batches.

May import: base, interceptors, settings.
"""
