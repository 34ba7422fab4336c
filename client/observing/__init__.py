"""What a producer tells of itself: metrics, spans, telemetry to the brokers, whole batches.

May import: sender's statistics, wire, model.
"""
